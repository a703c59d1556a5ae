// Faults on purpose (faults.txt), one at a time, in the engine that the simulation runs: each must be found, and
// without one nothing may be. docs/developers/planted_faults.md describes them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "base/thread_team.h"
#include "sim/judge.h"
#include "source_paths.h"

namespace ibid {

namespace {
std::string planted = std::getenv("IBID_PLANTED") != nullptr ? std::getenv("IBID_PLANTED") : "";
}  // namespace
bool is_planted(std::string_view name) { return name == planted; }

namespace sim {
namespace {

std::string read(const std::filesystem::path& file) {
  std::ostringstream out;
  out << std::ifstream(file).rdbuf();
  return out.str();
}

// Every one of faults.txt.
std::vector<std::string> all_faults() {
  std::vector<std::string> out;
  const std::regex place("PLANTED\\(\"([a-z0-9_]+)\"\\)");
  const std::string table = read(source_dir() + "/tests/planted/faults.txt");
  for (std::sregex_iterator it(table.begin(), table.end(), place), end; it != end; ++it) out.push_back((*it)[1]);
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// Of a model that can go on only where its state was kept, which the simulation has not.
constexpr const char* kWithState = "EngineProperty.SoItIsOfAModelThatGoesOnOnlyWhereItsStateWasKept";
// What no request can reach today is found by a unit's own test, which this program has too.
const std::map<std::string, std::string> kFoundByUnits = {
    {"adapters_share_prefixes", "EngineAdapters.BlocksAreSharedWithTheSameContentAlone"},
    {"adapters_are_the_next_sequences", "Adapters.AnyMixInAStepIsAsEachAlone"},
    {"adapters_have_no_factor", "LinearLayer.AddsTheBiasThenTheAdapterOfEachRow"},
    {"rows_of_an_adapter_are_neighbours", "Adapters.AnyMixInAStepIsAsEachAlone"},
    {"adapters_of_experts_read_their_row", "Adapters.AnyMixInAStepIsAsEachAlone"},
    {"experts_are_chosen_without_their_bias", "NaiveReference.HasTheLogitsOfModelsWithExperts"},
    {"shared_experts_are_not_gated", "NaiveReference.HasTheLogitsOfModelsWithExperts"},
    {"queries_are_not_scaled_by_position", "NaiveReference.HasTheLogitsOfScaledQueriesAndOfValuesOfKeys"},
    {"values_of_keys_turn", "NaiveReference.HasTheLogitsOfScaledQueriesAndOfValuesOfKeys"},
    {"shared_experts_alone", "NaiveReference.HasTheLogitsOfModelsWithExperts"},
    {"experts_have_no_biases", "NaiveReference.HasTheLogitsOfModelsWithExperts"},
    {"heads_have_no_sinks", "NaiveReference.HasTheLogitsOfModelsWithExperts"},
    {"heads_have_no_slopes", "NaiveReference.HasTheLogitsOfSlopesOfHeads"},
    {"slopes_of_a_power_of_two_go_on", "NaiveReference.HasTheLogitsOfSlopesOfHeads"},
    {"keys_are_not_clipped", "NaiveReference.HasTheLogitsOfSlopesOfHeads"},
    {"latent_queries_are_not_scaled_by_position", "NaiveReference.HasTheLogitsOfLatentAttention"},
    {"the_first_values_of_a_row_turn", "NaiveReference.HasTheLogitsOfLatentAttention"},
    {"queries_lose_what_turns", "NaiveReference.HasTheLogitsOfLatentAttention"},
    {"mscale_scales_once", "LatentAttention.HasYarnsTwoScales"},
    {"groups_of_v2_are_those_of_v3", "LatentAttention.HasTheRouterThatItsArchitectureMeans"},
    {"further_ends_are_lost", "Goldens/ConvertOf.AFolderGivesTheLogitsAndTheTokensOfTheFolder/llama"},
    {"a_written_vocabulary_ends_early", "Goldens/ConvertOf.AFolderGivesTheLogitsAndTheTokensOfTheFolder/llama"},
    {"written_keys_keep_their_halves", "Goldens/ConvertOf.AFolderGivesTheLogitsAndTheTokensOfTheFolder/llama"},
    {"converted_codes_keep_the_folders_order", "Convert.AQuantisedFoldersMatricesKeepTheirValues"},
    {"names_that_differ_are_as_others_have_them", "Convert.TheTensorsAreThoseOfTheFieldsConverter"},
    {"gptqs_errors_end_with_their_block", "GroupCodesOf.GptqIsThePapers"},
    {"gptqs_scales_are_of_the_weights_as_they_were", "GroupCodesOf.GptqIsThePapers"},
    {"awqs_norms_do_not_divide", "QuantiseFolder.EverySearchLeavesTheModelAlmostAsItWas"},
    {"awqs_up_projections_do_not_divide", "QuantiseFolder.EverySearchLeavesTheModelAlmostAsItWas"},
    {"gate_and_up_stay_in_turn", "TurnedExperts.HaveTheBitsOfTheSameWeightsInAGguf"},
    {"halves_of_a_byte_are_swapped", "TurnedExperts.HaveTheBitsOfTheSameWeightsInAGguf"},
    {"experts_have_the_first_ones_scale", "OutScale.OfExpertsIsOneForEach"},
    {"a_products_scale_is_not_read", "OutScale.OfUpAndOfDownAreTheSame"},
    {"products_keep_no_scale_of_theirs", "OutScale.OfUpAndOfDownAreTheSame"},
    {"a_cancelled_pictures_work_goes_on", "Pictures.ACancelledRequestsWorkIsLeft"},
    {"the_last_picture_is_found_for_any", "Pictures.AreMadeInTheOrderOfTheirRequests"},
    {"cells_see_no_later_cells", "All/VisionGolden.TheEngineAnswersAsTransformers/gemma3_vision"},
    {"layers_add_the_embeddings_of_pictures", "All/VisionGolden.TheEngineAnswersAsTransformers/qwen3vl_vision"},
    {"pictures_have_no_rows_and_columns", "All/VisionGolden.TheEngineAnswersAsTransformers/qwen3vl_vision"},
    {"cells_have_rows_of_their_token", "All/VisionGolden.TheEngineAnswersAsTransformers/gemma4_vision"},
    {"layers_without_a_window_see_later_cells",
     "All/VisionGolden.RowsAndLogitsOfTheFolderAreThoseOfTransformers/gemma4_large_vision"},
    {"outputs_of_towers_are_not_kept_in_range",
     "All/VisionGolden.RowsAndLogitsOfTheFolderAreThoseOfTransformers/gemma4_vision"},
    {"pairs_of_a_half_turn_across_halves",
     "All/VisionGolden.RowsAndLogitsOfTheFolderAreThoseOfTransformers/gemma4_large_vision"},
    {"positions_of_patches_end_early",
     "All/VisionGolden.RowsAndLogitsOfTheFolderAreThoseOfTransformers/qwen3vl_vision"},
    {"a_place_too_early", "EngineEviction.SequencesGoOnAtTheirPlace"},
    {"rows_that_are_left_are_published", "EngineEviction.ThePromptsBlocksAreGivenBackAndFound"},
    {"a_hit_covers_what_scores", "EngineEviction.ThePromptsBlocksAreGivenBackAndFound"},
    {"a_step_ends_among_a_windows_tokens", "Policies/EvictionUnderSchedules.AnswersAsAlone/snapkv_f16"},
    {"a_step_goes_past_a_point", "EngineEviction.SequencesGoOnAtTheirPlace"},
    {"drafts_go_past_a_point", "EngineEviction.DraftsStopBeforeAPoint"},
    {"of_equal_scores_the_last", "KeepRows.AreChosenByScoreThenByPlace"},
    {"a_query_reads_what_follows_it", "KeepRows.AreThoseOfTheLawOnEveryInstructionSet"},
    {"scores_are_pooled_to_one_side", "KeepRows.AreThoseOfTheLawOnEveryInstructionSet"},
    {"pictures_share_prefixes", "Models/PicturesOfRequests.BlocksAreSharedWithTheSamePicturesAlone/qwen3vl_vision"},
    {"steps_end_within_pictures", "Models/PicturesOfRequests.AnswerTheSameUnderThirtyTwoSchedules/gemma3_vision"},
    {"headers_of_pictures_are_believed", "Decode.SizesAreLimited"},
    {"sizes_of_turned_pictures_are_as_stored", "Decode.GivesThePixelsOfPillow"},
    {"pixels_that_are_missing_are_grey", "Decode.AHeaderThatLiesIsAnError"},
    {"transverse_pictures_are_turned", "Decode.GivesThePixelsOfPillow"},
    {"halves_of_patches_round_up", "Patches.SizesAreThoseOfTransformers"},
    {"patches_of_cells_lie_apart", "Patches.HaveTheValuesOfTransformers"},
    {"pictures_of_another_shape_are_the_same", "PictureDigests.CoverThePictureAndAllOfTheRule"},
    {"shrunk_pictures_are_sampled", "Resize.GivesThePixelsOfTorchvision"},
    {"weights_of_pixels_are_cut", "Resize.GivesThePixelsOfTorchvision"},
    {"zeros_of_version_1_are_as_stored", "QuantisedFolders.EachMatrixIsWhatItsPackageMakesOfIt"},
    {"symmetric_zeros_are_read", "QuantisedFolders.EachMatrixIsWhatItsPackageMakesOfIt"},
    {"awqs_outputs_lie_in_order", "QuantisedFolders.EachMatrixIsWhatItsPackageMakesOfIt"},
    {"an_order_of_inputs_is_lost", "QuantisedFolders.EachMatrixIsWhatItsPackageMakesOfIt"},
    {"a_scale_inv_divides", "QuantisedFolders.EachMatrixIsWhatItsPackageMakesOfIt"},
    {"nvfp4s_global_scale_multiplies", "QuantisedFolders.EachMatrixIsWhatItsPackageMakesOfIt"},
    {"nf4s_first_value_is_the_low_half", "QuantisedFolders.EachMatrixIsWhatItsPackageMakesOfIt"},
    {"yarn_of_gpt_oss_has_whole_ends", "ModelConfig.OfGptOssHasWhatItsGgufHasNoKeyFor"},
    {"scales_of_e4m3_are_rounded_to_nearest", "KvCodes.OfE4M3AreTheNearestOfItsNumbersTimesAScaleThatReachesAll"},
    {"e4m3_is_of_unscaled_numbers", "KvCodes.OfE4M3AreTheNearestOfItsNumbersTimesAScaleThatReachesAll"},
    {"an_experts_sums_are_of_those_before_it_too", "ImatrixOfExperts.EachExpertsSumsAreOfTheTokensThatUseIt"},
    {"sums_are_not_of_squares", "Imatrix.SumsAreOfSquares"},
    {"counts_are_not_added", "Imatrix.IsReadAsItWasWrittenAndAddsUp"},
    {"importance_grows_with_the_text", "Imatrix.WeighsAnInputByTheMeanOfItsSquares"},
    {"rules_are_of_what_names_begin_with", "TypeRules.TheFirstExpressionThatMatchesAnywhereCounts"},
    {"an_output_tied_to_the_embedding_is_none", "TypeRules.OutputAndEmbeddingGoBeforeExpressions"},
    {"pure_is_still_mixed", "TypeRules.PureIsOneTypeAndFloatsStayFloats"},
    {"shards_are_a_tensor_too_large", "Shards.AreReadAsOneModel"},
    {"shards_stay_beside_one_that_fails", "Shards.AppearTogetherOrNotAtAll"},
    {"a_shard_counts_its_own_tensors", "Shards.AreReadAsOneModel"},
    {"codes_are_copied_without_their_scales", "AttentionOfCodes.ASlotIsCopiedWithItsScales"},
    {"codes_of_values_have_the_keys_scale", "AttentionOfCodes.IsThatOfTheNumbersTheyStandFor"},
    {"codes_are_copied_without_their_zeros", "AttentionOfCodes.ASlotIsCopiedWithItsScales"},
    {"values_are_packed_as_keys", "AttentionOfCodes.IsThatOfTheNumbersTheyStandFor"},
    {"queries_are_not_turned", "AttentionOfCodes.IsThatOfTheNumbersTheyStandFor"},
    {"merged_outputs_stay_turned", "AttentionOfCodes.IsThatOfTheNumbersTheyStandFor"},
    {"values_read_the_keys_scales", "AttentionOfCodes.IsThatOfTheNumbersTheyStandFor"},
    {"equals_are_chosen_by_the_higher_index", "Experts.OfTheSameScoreAreChosenByTheLowerIndex"},
    {"weights_have_the_bias_of_the_choice", "Experts.HaveWeightsWithoutTheBiasOfTheChoice"},
    {"experts_are_added_in_one_group", "Experts.AreAddedInTheirOrder"},
    {"convolutions_begin_again", "Recurrent.ShortConvolutionsGoOnFromAnyState"},
    {"value_heads_are_tiled_in_every_file", "NaiveReference.HasTheLogitsOfModelsWithRecurrentLayers"},
    {"value_heads_are_grouped_in_every_file", "NaiveReference.HasTheLogitsOfModelsWithRecurrentLayers"},
    {"state_spaces_read_another_group", "NaiveReference.HasTheLogitsOfModelsWithRecurrentLayers"},
    {"convolutions_have_no_bias", "NaiveReference.HasTheLogitsOfModelsWithRecurrentLayers"},
    {"state_spaces_are_gated_last", "NaiveReference.HasTheLogitsOfModelsWithRecurrentLayers"},
    {"state_spaces_have_one_group_of_norms", "NaiveReference.HasTheLogitsOfModelsWithRecurrentLayers"},
    {"wanted_rows_keep_the_norm_of_others", "RecurrentLayers.OneRowOfAStepHasTheBitsOfAll"},
    {"experts_read_the_whole_row", "NaiveReference.HasTheLogitsOfModelsWithRecurrentLayers"},
    {"attention_is_not_gated", "NaiveReference.HasTheLogitsOfModelsWithRecurrentLayers"},
    {"states_stay_where_no_row_is_wanted", "RecurrentLayers.GoOnInStepsWithoutRows"},
    {"what_rejection_verifies_depends_on_time", "EngineRejection.ReplaysToTheByteWhereDraftsArePinned"},
    {"a_race_without_weight_has_no_winner", "Rejection.GivesATokenOfASupportThatWeighsNothing"},
    {"a_cost_below_nothing", "StepCost.NoPartCostsLessThanNothing"},
    {"a_record_has_no_hidden_states", "Record.AVectorRunsAgain"},
    {"a_replays_drafts_are_cut_by_grammars", "Record.AsManyDraftsAsRanUnderAGrammarRunAgain"},
    {"a_search_is_not_told", "Record.ASearchRunsAgain"},
    {"an_error_after_drafts_replays_without_them", "Record.AnErrorAfterDraftsRunsAgain"},
    {"a_made_grammar_is_known_without_its_last_part", "Grammars.MadeGrammarIsKeyedByEachOfItsParts"},
    {"the_ratio_is_inverted", "Rejection.AcceptsAsOftenAsTheLawsOverlapAndDrawsTheTargetsLaw"},
    {"q_of_another_sampler", "EngineRejection.AnswersHaveTheTargetsLaw"},
    {"every_draft_is_accepted", "Rejection.AcceptsAsOftenAsTheLawsOverlapAndDrawsTheTargetsLaw"},
    {"q_counts_as_one", "Rejection.AcceptsAsOftenAsTheLawsOverlapAndDrawsTheTargetsLaw"},
    {"typical_acceptance_forgets_the_entropy", "TypicalAcceptance.TakesWhatIsLikelyBesideTheEntropyAndElseDraws"},
    {"only_the_drafts_own_q_is_known", "Rejection.AcceptsAsOftenAsTheLawsOverlapAndDrawsTheTargetsLaw"},
    {"the_residual_shares_the_proposals_noise", "Rejection.AcceptsAsOftenAsTheLawsOverlapAndDrawsTheTargetsLaw"},
    {"the_residual_forgets_q", "Rejection.AcceptsAsOftenAsTheLawsOverlapAndDrawsTheTargetsLaw"},
    {"the_residual_is_not_clamped", "Rejection.AcceptsAsOftenAsTheLawsOverlapAndDrawsTheTargetsLaw"},
    {"siblings_are_tried_against_the_first_p", "Schemes/SiblingDraws.HaveTheTargetsLaw/independent"},
    {"what_is_left_of_q_is_not_normalised", "Schemes/SiblingDraws.HaveTheTargetsLaw/distinct"},
    {"siblings_share_the_acceptance_noise", "Schemes/SiblingDraws.HaveTheTargetsLaw/independent"},
    {"siblings_share_the_proposals_noise", "Schemes/SiblingDraws.HaveTheTargetsLaw/independent"},
    {"a_path_goes_through_a_sibling", "Schemes/EngineRejectionTrees.ReplayToTheByte/distinct"},
    {"an_eagles_draft_sees_its_parents_sibling", "Kinds/EagleTrees.AreWhatTheHeadPredictsOnEachPath/eagle3"},
    {"an_eagles_siblings_have_positions_of_their_own", "Kinds/EagleTrees.AreWhatTheHeadPredictsOnEachPath/eagle3"},
    {"an_eagle_reads_a_siblings_state", "Kinds/EagleTrees.AreWhatTheHeadPredictsOnEachPath/eagle3"},
    {"runners_up_count_as_first_drafts", "Kinds/EagleTrees.GrowWhereRunnersUpAreRight/eagle3"},
    {"unlikely_drawn_drafts_are_dropped", "Kinds/EagleTrees.DrawnForRejectionLeaveTheTargetsLaw/eagle3"},
    {"drawn_ends_are_withheld", "EngineRejection.EndsAreAsFrequentAsTheyAre"},
    {"a_drafts_noise_is_the_targets", "EngineRejection.AnswersHaveTheTargetsLaw"},
    {"rejection_is_never_asked", "EngineRejection.AnswersHaveTheTargetsLaw"},
    {"a_draft_model_draws_with_other_noise", "DraftModel.TargetAsItsOwnDraftModelIsAlwaysRight"},
    {"a_draft_model_forgets_its_drafts", "DraftModel.TargetAsItsOwnDraftModelIsAlwaysRight"},
    {"a_draft_model_ignores_grammars", "EngineGrammar.ADraftModelDrawsWithinItToo"},
    {"a_draft_model_keeps_what_was_refused", "DraftModel.SeesTheSequenceAfterWhatWasRefused"},
    {"a_draft_model_raises_itl", "DraftModel.KeepsWithinTheTimeBetweenTokens"},
    {"a_draft_model_reads_prompts_at_once", "DraftModel.ReadsALongPromptInPieces"},
    {"a_draft_model_shares_across_tenants", "DraftModel.FindsSequencesOfItsOwnTenantAlone"},
    {"heads_read_stale_states", "HeadsProposer.ReadsTheLastStateAndTheTokensAfterIt"},
    {"heads_read_the_token_before", "HeadsProposer.ReadsTheLastStateAndTheTokensAfterIt"},
    {"heads_read_the_sibling_before", "HeadsProposer.DrawsTreesFromThePredictionsOnEachPath"},
    {"rows_cost_a_search_nothing", "LayerSearch.WeighsWhatLayersAndRowsCost"},
    {"the_last_layer_is_left_out_instead", "LayerSearch.LeavesOutWhatAgreesMostOneAfterTheOther"},
    {"an_eagle_adds_d_to_t_twice", "EagleHeads.KnowWhatTheyReadAndWhatTheirOutputsStandFor"},
    {"an_eagle_pairs_a_token_with_itself", "Kinds/EagleDrafts.AreWhatTheHeadPredictsFromTheWholeSequence/eagle3"},
    {"an_eagle_leaves_pinned_sequences_in_a_crowd",
     "Kinds/EagleDrafts.InACrowdAreOfThoseAloneWhoseDraftsArePinned/eagle3"},
    {"a_sequence_drafts_without_credit", "Gain.IsNeverALossOfMoreThanAnAccountLends"},
    {"debts_last", "Gain.ComesAlsoToSequencesThatWereInDebt"},
    {"an_eagle_taps_the_layer_after", "EagleHeads.KnowWhatTheyReadAndWhatTheirOutputsStandFor"},
    {"an_mtp_layers_halves_are_swapped", "Kinds/EagleGolden.PredictsWhatThePapersFormulasGive/mtp"},
    {"an_mtp_layer_reads_tokens_alone", "Kinds/EagleGolden.PredictsWhatThePapersFormulasGive/mtp"},
    {"an_mtp_layers_norms_are_those_of_a_gguf", "Families/MtpOfEachKind.AnswersAsTheModelOfThatLayerAlone/qwen3next"},
    {"a_head_goes_on_without_its_norm", "Kinds/EagleGolden.PredictsWhatThePapersFormulasGive/eagle3_fc_norm"},
    {"keys_of_refused_eagle_drafts_stay", "Kinds/EagleDrafts.WrongDraftsLeaveNoState/eagle3"},
    {"rejection_with_what_the_cache_knows", "Drafts/Taps.OfWhatThePrefixCacheKnowsComeForRejectionAlone/chains"},
    {"taps_of_refused_siblings", "Drafts/Taps.AreThoseOfTheTokensThatSequencesHave/trees"},
    {"hidden_of_the_shares_first_row", "HiddenOfDrawnRows.IsThatOfTheTokenBeforeTheLast"},
    {"likelier_drafts_of_others_are_replaced", "DraftModel.LeavesLikelierDraftsOfOthersInPlace"},
    {"nothing_is_learned_of_a_draft_model", "DraftModel.IsNeverSlowerThanNone"},
    {"prompts_are_read_whatever_they_cost", "DraftModel.LeavesALongPromptWithAShortAnswerAlone"},
    {"the_last_draft_is_never_read", "DraftModel.TargetAsItsOwnDraftModelIsAlwaysRight"},
    {"time_of_a_draft_model_is_not_priced", "DraftModel.CostlyModelIsNotAsked"},
    {"a_moved_window_keeps_its_keys", "DraftModel.ReadsNothingButItsWindow"},
    {"a_draft_is_written_a_slot_early", "WindowProposer.ItsKeysAreNeverReadAsTheSequences"},
    {"a_row_after_another_draft_is_believed", "WindowProposer.ReadsOthersDraftsInOnePassAndDraftsTheSame"},
    {"a_loan_evicts", "WindowProposer.EvictsNothing"},
    {"a_loan_is_kept", "WindowProposer.PutsThePoolBackAsItWas"},
    {"a_view_begins_a_block_late", "WindowProposer.ReadsTheSinkAndTheWindowAtTheirTruePositions"},
    {"a_view_counts_its_own_positions", "WindowProposer.ReadsTheSinkAndTheWindowAtTheirTruePositions"},
    {"drafts_after_long_sequences_are_never_tried", "WindowProposer.IsTriedAfterALongSequenceBeforeItsPriceIsKnown"},
    {"drafts_read_alone", "StepCost.ADraftAfterALongSequenceIsNotPricedAsASequenceOfItsOwn"},
    {"two_that_may_follow_are_one", "EngineGrammar.ForcedTokensAreDrafted"},
    {"what_is_forced_is_forced_again", "EngineGrammar.ForcedTokensAreDrafted"},
    {"decodes_make_prompts_forgotten", "StepCost.ManyDecodesDoNotMakeItForgetPrompts"},
    {"itl_is_not_bounded", "Pace.AGivenBoundIsKept"},
    {"a_forecast_budgets_without_decodes", "Loads/ForecastError.OfTheFirstTokenIsWithinAFifth/*"},
    {"a_forecast_computes_what_is_cached", "Forecast.QueueTokensLeaveOutWhatIsCached"},
    {"a_forecast_has_blocks_for_all", "Loads/ForecastError.OfTheFirstTokenIsWithinAFifth/no_blocks"},
    {"a_forecast_has_places_for_all", "Loads/ForecastError.OfTheFirstTokenIsWithinAFifth/no_places"},
    {"grammar_of_the_parents_parent", "EngineGrammar.AnswersAreOfItAndTheSameHoweverTheyCameAbout"},
    {"beam_keeps_its_seats_grammar", "Search.SequencesAreTheSameAloneInCompanyAndHoweverOftenTheirBlocksAreTaken"},
    {"beams_go_on_without_the_others", "Search.SequencesAreTheSameAloneInCompanyAndHoweverOftenTheirBlocksAreTaken"},
    {"parked_beams_keep_their_blocks", "Search.SequencesAreTheSameAloneInCompanyAndHoweverOftenTheirBlocksAreTaken"},
    {"reasoning_goes_on", "EngineReasoning.EndsInItsBudgetAndTheSameHoweverItCameAbout"},
    {"oldest_has_no_part", "Pace.ALongPromptIsNotStarvedByShortOnes"},
    {"overdue_are_served", "Targets.OnlyRequestsPastTheirMaxWaitAreRefused"},
    {"prompts_count_as_answers", "Fairness.LongPromptsBesideLongAnswersHaveTheSameTime"},
    {"prompts_starve_beside_decodes", "Pace.PromptsAreNotStarvedWhereManyStreamsDecode"},
    {"a_clone_is_too_long", "SuffixAutomaton.FindsTheLongestEndThatOccursBeforeOfAnySequence"},
    {"a_requests_mode_is_ignored", "Speculation.RequestMayUseTheFreeProposersAlone"},
    {"a_requests_own_bound_is_ignored", "Speculation.RequestLimitsItsDrafts"},
    {"blocks_of_refused_drafts_stay", "Speculation.AnEndInsideDraftsIsTheSameEnd"},
    {"ended_choices_keep_their_places", "Speculation.AChoiceThatEndedIsForgottenAtOnce"},
    {"drafts_after_the_context", "Speculation.AnEndInsideDraftsIsTheSameEnd"},
    {"drafts_go_on_after_an_end", "LookupProposer.StopsAfterAnEnd"},
    {"drafts_raise_itl", "Speculation.KeepsWithinTheTimeBetweenTokens"},
    {"drafts_that_no_grammar_allows", "EngineGrammar.DraftsEndWhereTheGrammarRefusesThem"},
    {"drafts_outlive_a_preemption", "Verification.DraftsOfAPreemptedSequenceAreDropped"},
    {"drafts_preempt_others", "Verification.DraftsTakeBlocksFromNoSequence"},
    {"drafts_whatever_they_cost", "Speculation.IsNeverSlowerThanNone"},
    {"nothing_is_learned_of_a_sequence", "LookupProposer.LearnsHowOftenItIsRight"},
    {"refused_drafts_count", "Speculation.AnEndInsideDraftsIsTheSameEnd"},
    {"a_cursor_forgets_its_length", "OwnAnswers.FindTheLongestEndOfAnySequence"},
    {"a_store_drafts_one_further", "TextStores.DraftWhatFollowsMostOften"},
    {"a_store_goes_on_after_a_sequences_end", "TextStores.SeparateTheirTexts"},
    {"better_drafts_of_the_sequence_are_replaced", "StoreProposer.LeavesBetterDraftsOfOthersInPlace"},
    {"own_answers_are_everybodys", "OwnAnswers.AreOneTenantsAlone"},
    {"own_answers_outgrow_their_bytes", "OwnAnswers.HoldNoMoreThanTheirBytes"},
    {"what_was_cut_short_is_kept", "Speculation.KeepsAnswersThatEndedAlone"},
    {"sequences_of_others_are_looked_at", "LookupProposer.LooksAtNoSequenceButItsOwn"},
    {"blocks_are_copied_at_any_price", "HostTier.IsLeftAloneWhereComputingIsQuicker"},
    {"recompute_is_booked_as_prefill", "Ledger.RecomputedTokensCountAsPreemption"},
    {"usage_without_drafts", "Speculation.AnEndInsideDraftsIsTheSameEnd"},
    {"service_is_saved_up", "Fairness.IdleTenantSavesUpNothing"},
    {"new_memory_is_free", "Pace.MemoryThatIsWrittenForTheFirstTimeIsForeseen"},
    {"experts_are_read_for_nothing", "StepCost.KnowsTheExpertsThatAStepTouchesAndTheStatesOfItsSequences"},
    {"stalls_are_believed", "StepCost.AStalledStepTeachesNothing"},
    {"targets_that_cannot_be_kept_bind", "Targets.TargetBelowALoneDecodeIsIgnored"},
    {"targets_bind_other_tenants", "Targets.OfOneTenantKeepNoOtherOut"},
    {"targets_are_ignored", "Targets.RequestsThatWouldBreakTheItlTargetStayOut"},
    {"replay_loses_what_was_read", "Record.BlocksFromADiskReplayWithoutOne"},
    {"a_tenants_choices_slow_the_others", "FairSteps.OneSequenceBesideSixtyThreeHasHalfItsSpeed"},
    {"weight_is_ignored", "Fairness.AWeightOfThreeHasThreeTimesAsMuch"},
    {"share_of_a_victim_stays", "Scheduler.SequenceThatLosesItsBlocksLosesItsShare"},
    {"encoder_reads_in_pieces", "Encoder.GivesTheSameBytesAloneAndInCompany"},
    {"pair_of_one_sequence", "Encoder.DistinguishesAPairFromOneSequence"},
    {"a_state_is_known_without_its_origins", "GrammarStates.AgreeWithATextbookOnRandomGrammars"},
    {"a_rule_returns_to_one_caller", "GrammarStates.AgreeWithATextbookOnRandomGrammars"},
    {"a_counter_stops_one_short", "GrammarStates.CountRepeats"},
    {"an_end_one_token_too_far_is_in_time", "GrammarMasks.AreThoseOfBruteForceOnRandomGrammars"},
    {"a_named_token_is_taken_by_its_bytes", "GrammarMasks.OfTokensThatTheGrammarNames"},
    {"a_counter_speaks_for_all_that_its_body_calls", "GrammarMasks.OfNumbersInListsThatAreCounted"},
    {"the_longest_begin_of_a_token_is_dropped", "GrammarMasks.AreThoseOfBruteForceOnJsonAndCounters"},
    {"a_trigger_within_a_triggers_begin_is_missed", "GrammarLazy.FindsATriggerWhereverItBegins"},
    {"what_waits_for_a_word_takes_no_memory", "GrammarLazy.TextThatMayBecomeATriggerIsHeldBack"},
    {"required_holds_in_its_own_order_alone", "GrammarSchema.HoldsExactlyTheValidValuesOfRandomSchemas"},
    {"of_equal_keys_the_first_counts", "GrammarSchema.OfEqualKeysTheLastOneCounts"},
    {"a_loop_may_be_one_shorter", "GrammarSchema.LengthsLeaveOfPatternsWhatHasThem"},
    {"row_of_the_refused_draft_before", "RefusedDrafts.CarryTheTargetsTokensAfterThem"},
    {"a_layer_turns_by_another_rope", "NaiveReference.HasTheLogitsOfLayersThatDifferInAllSizes"},
    {"a_layer_has_anothers_scale", "NaiveReference.HasTheLogitsOfLayersThatDifferInAllSizes"},
    {"a_layer_has_anothers_window", "NaiveReference.HasTheLogitsOfLayersThatDifferInAllSizes"},
    {"rows_are_as_wide_as_the_widest_layers", "NaiveReference.HasTheLogitsOfLayersThatDifferInAllSizes"},
    {"a_reader_has_a_cache_too", "MixedLayers.TheCacheHasRoomForWhatEachLayerKeepsAndNoMore"},
    {"an_owner_keeps_its_old_number", "MixedLayers.AnOwnerOfACacheIsLeftOutWithItsReadersAlone"},
    {"latent_rows_lie_twice", "ModelConfig.EachKindOfMixerKeepsItsOwn"},
    {"a_fork_without_its_state", "States.AForkTakesTheStateThatTheTreeHolds"},
    {"a_preempted_state_of_the_token_before", kWithState},
    {"a_disk_state_of_the_token_before", kWithState},
    {"an_arrived_state_is_not_filled", kWithState},
    {"a_disk_state_without_its_scope", "DurableKey.OfAStateIsOfItsTokensAndOfWhatIsBeforeThem"},
    {"a_block_of_no_use_is_kept", "States.BlocksThatNothingCanGoOnFromAreEvictedFirst"},
    {"a_stale_state_is_written", "StatePool.ReadsNoSnapshotWhoseCopyIsStillPlanned"},
    {"a_disk_key_without_the_states_layout", "DiskStates.OneOfAnotherLayoutIsNotFound"},
    {"a_prefix_without_its_state", kWithState},
    {"a_sequence_falls_back_anywhere", kWithState},
    {"a_shared_state_is_written", "States.AStateThatTheTreeHoldsIsWrittenNoMore"},
    {"a_snapshot_of_the_shares_end", kWithState},
    {"a_state_of_the_token_before", kWithState},
    {"an_accepted_drafts_state_is_another", kWithState},
    {"room_falls_back_anywhere", kWithState},
    {"snapshots_outlive_their_node", kWithState},
    {"states_stay_where_they_are", kWithState},
    {"pinned_after_look_up", "Tiers.RandomSequencesKeepTheirLettersWhereverTheyHaveBeen"},
};
// What the simulation finds and a unit's test too, which shows what is wrong and not only that something is.
const std::map<std::string, std::string> kFoundByBoth = {
    {"row_of_the_draft_before", "Verification.ATokenIsDrawnFromTheRowOfTheDraftBeforeIt"},
    {"wrong_draft_taken", "Verification.ADraftIsTakenOverOnlyWhereItIsWhatWasDrawn"},
    {"state_of_the_sequences_end", "Verification.ASamplersStateGoesFromDraftToDraft"},
    {"history_without_drafts", "Verification.ASamplerSeesTheDraftsBeforeIt"},
    {"a_refused_drafts_keys_stay", "Verification.ARefusedDraftsKeysAreNoTokensOfTheSequence"},
    {"accepted_drafts_not_moved", "Verification.AcceptedDraftsOfATreeAreMovedToWhereTheirSequenceIs"},
    {"draft_at_its_slots_position", "Verification.ADraftOfATreeStandsAtItsDepth"},
};
bool unit_passes(const std::string& fault, const std::string& test) {
  const std::string command = "IBID_PLANTED=" + fault + " '" + build_dir() + "/planted_suite' --gtest_filter=" + test;
  return std::system((command + " > /dev/null 2>&1").c_str()) == 0;
}

// What it once found, cut down, comes first; then lives by their seeds.
std::vector<Judged> live_with(const std::string& fault, uint64_t n_seeds) {
  for (const auto& file : std::filesystem::directory_iterator(source_dir() + "/tests/sim/scripts")) {
    const Verdict verdict = judge(read_script(read(file.path())).value(), [&] { planted = fault; });
    if (verdict.failed) return {{0, verdict}};
  }
  std::vector<uint64_t> seeds(n_seeds);
  std::iota(seeds.begin(), seeds.end(), 1);
  return judge_seeds(seeds, 1000, usable_cores(), [&] { planted = fault; });
}

class PlantedFault : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, PlantedFault, ::testing::ValuesIn(all_faults()),
                         [](const auto& fault) { return fault.param; });

TEST_P(PlantedFault, IsFound) {
  if (const auto unit = kFoundByUnits.find(GetParam()); unit != kFoundByUnits.end()) {
    EXPECT_TRUE(unit_passes("", unit->second));
    EXPECT_FALSE(unit_passes(unit->first, unit->second)) << "nothing noticed it";
    return;
  }
  if (const auto both = kFoundByBoth.find(GetParam()); both != kFoundByBoth.end()) {
    EXPECT_TRUE(unit_passes("", both->second));
    EXPECT_FALSE(unit_passes(both->first, both->second)) << "no unit's test noticed it";
  }
  const auto judged = live_with(GetParam(), 200);
  const Judged& last = judged.back();
  ASSERT_TRUE(last.verdict.failed) << "nothing noticed it";
  std::printf("%s: seed %d, step %d: %s\n", GetParam().c_str(), static_cast<int>(last.seed),
              static_cast<int>(last.verdict.step), last.verdict.what.c_str());
}

TEST(PlantedFaults, WithoutOneNothingIsFound) {
  const auto judged = live_with("", 40);
  EXPECT_FALSE(judged.back().verdict.failed) << judged.back().verdict.what;
}

TEST(PlantedFaults, AreCutDownToAScriptThatStillFails) {
  const auto plant = [] { planted = "copy_of_the_wrong_block"; };
  uint64_t seed = 1;
  while (!judge(random_script(seed, 1000), plant).failed) ASSERT_LT(++seed, 100u);
  const Script whole = random_script(seed, 1000);
  const Script shrunk = shrink(whole, plant);
  EXPECT_LT(shrunk.events.size(), 8u) << text_of(shrunk);
  EXPECT_TRUE(judge(read_script(text_of(shrunk)).value(), plant).failed);
  EXPECT_FALSE(judge(shrunk).failed);
}

TEST(PlantedFaults, AreThirtyAtLeastAndTheTableHasEachOnce) {
  const std::vector<std::string> faults = all_faults();
  EXPECT_GE(faults.size(), 30u);
  std::vector<std::string> rows;
  const std::string page = read(source_dir() + "/docs/developers/planted_faults.md");
  const std::regex row("\n\\| `([a-z0-9_]+)` \\|");
  for (std::sregex_iterator it(page.begin(), page.end(), row), end; it != end; ++it) rows.push_back((*it)[1]);
  std::ranges::sort(rows);
  EXPECT_EQ(rows, faults);
}

}  // namespace
}  // namespace sim
}  // namespace ibid
