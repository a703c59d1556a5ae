{{/* All of a release has its name; a release of any name may run beside others. */}}
{{- define "ibid.name" -}}
{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- end -}}

{{- define "ibid.labels" -}}
app.kubernetes.io/name: ibid
app.kubernetes.io/instance: {{ include "ibid.name" . }}
{{- end -}}

{{/* The arguments of the container, a JSON array of strings. */}}
{{- define "ibid.args" -}}
{{- $name := include "ibid.name" . -}}
{{- $args := list "serve" (printf "/models/%s" .Values.model.file) "--host" "0.0.0.0" "--port" "8080" -}}
{{- if .Values.keys.secret -}}
{{- $args = concat $args (list "--api-key-file" "/keys/keys") -}}
{{- else -}}
{{- /* Probes and scrapers ask a pod by its address. */ -}}
{{- range $host := list "$(POD_IP)" $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc" $name .Release.Namespace) (printf "%s.%s.svc.cluster.local" $name .Release.Namespace) -}}
{{- $args = concat $args (list "--allow-host" $host) -}}
{{- end -}}
{{- end -}}
{{- $args = concat $args (list "--metrics-names" .Values.metricsNames "--drain-timeout" (toString (int .Values.drainSeconds))) -}}
{{- if .Values.kvEvents.enabled -}}
{{- $args = concat $args (list "--kv-events" (printf "tcp://*:%d" (int .Values.kvEvents.port)) "--kv-events-replay" (printf "tcp://*:%d" (int .Values.kvEvents.replayPort))) -}}
{{- end -}}
{{- toJson (concat $args .Values.args) -}}
{{- end -}}
