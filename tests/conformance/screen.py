"""What a terminal shows: enough of xterm for libedit and ibid."""
import re
import unicodedata


def width_of(c):
    if unicodedata.combining(c) or unicodedata.category(c) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(c) in "WF" else 1


class Screen:
    """Rows of characters, and where the cursor is. Feed it all that a program writes."""

    def __init__(self, columns=80, rows=24):
        self.columns, self.rows = columns, rows
        self.cells = [[" "] * columns for _ in range(rows)]
        self.row = self.column = 0
        self.pending = ""
        self.modes = set()

    def text(self):
        return "\n".join("".join(row).rstrip() for row in self.cells).rstrip()

    def feed(self, text):
        text, self.pending = self.pending + text, ""
        i = 0
        while i < len(text):
            c = text[i]
            if c == "\x1b":
                found = re.compile(r"\x1b\[([0-9;?]*)([@-~])|\x1b[=>78M]|\x1b\([A-Z0-9]").match(text, i)
                if not found:
                    self.pending = text[i:]
                    return
                if found.group(2):
                    self.sequence(found.group(1), found.group(2))
                i = found.end()
                continue
            self.put(c)
            i += 1

    def line_feed(self):
        if self.row + 1 == self.rows:
            self.cells.append([" "] * self.columns)
            del self.cells[0]
        else:
            self.row += 1

    def put(self, c):
        if c == "\r":
            self.column = 0
        elif c == "\n":
            self.line_feed()
        elif c == "\b":
            self.column = max(0, min(self.column, self.columns - 1) - 1)
        elif c == "\t":
            self.column = min(self.columns - 1, self.column // 8 * 8 + 8)
        elif c >= " " and c != "\x7f":
            width = width_of(c)
            if width == 0:
                return
            if self.column + width > self.columns:
                self.column = 0
                self.line_feed()
            self.cells[self.row][self.column] = c
            for k in range(1, width):
                self.cells[self.row][self.column + k] = ""
            self.column += width

    def sequence(self, arguments, kind):
        if arguments.startswith("?"):
            (self.modes.add if kind == "h" else self.modes.discard)(arguments[1:])
            return
        numbers = [int(n) if n else 0 for n in arguments.split(";")]
        n = max(1, numbers[0])
        row, at = self.cells[self.row], min(self.column, self.columns - 1)
        if kind == "A":
            self.row = max(0, self.row - n)
        elif kind == "B":
            self.row = min(self.rows - 1, self.row + n)
        elif kind == "C":
            self.column = min(self.columns - 1, at + n)
        elif kind == "D":
            self.column = max(0, at - n)
        elif kind == "G":
            self.column = min(self.columns, n) - 1
        elif kind == "H":
            self.row, self.column = n - 1, (max(1, numbers[1]) if len(numbers) > 1 else 1) - 1
        elif kind == "K":
            row[at:] = [" "] * (self.columns - at)
        elif kind == "J":
            first = 0 if numbers[0] == 2 else self.row + 1
            if numbers[0] != 2:
                row[at:] = [" "] * (self.columns - at)
            for k in range(first, self.rows):
                self.cells[k] = [" "] * self.columns
        elif kind == "P":
            del row[at:at + n]
            row += [" "] * (self.columns - len(row))
        elif kind == "@":
            row[at:at] = [" "] * n
            del row[self.columns:]
