package metrics

// The metrics.
const (
	ReviewDurationName = "vicinity_webhook_review_duration_seconds"
	reviewDurationHelp = "How long it took to answer a request, from its headers to the last byte of the answer."

	ReviewsName = "vicinity_webhook_reviews_total"
	reviewsHelp = "Requests that were answered, by outcome. After an error the API server goes by failurePolicy."

	DecisionsName = "vicinity_webhook_decisions_total"
	decisionsHelp = "Violations of rules that users were told of, by what followed from them."

	DefaultedName = "vicinity_webhook_defaulted_total"
	defaultedHelp = "Decisions about Services' defaults, by who decided and what was added: a setting, or none."

	InternalErrorsName = "vicinity_webhook_internal_errors_total"
	internalErrorsHelp = "What failed for reasons of ours, such as a review or the renewal of a certificate; the log says what."

	RefusedRequestsName = "vicinity_webhook_refused_requests_total"
	refusedRequestsHelp = "Requests that were no reviews, too big, or too many at once; they were answered with a status of 4xx or 503."

	InFlightName = "vicinity_webhook_in_flight"
	inFlightHelp = "Reviews that are being worked on at present."

	CertificateExpiryName = "vicinity_webhook_certificate_expiry_timestamp_seconds"
	certificateExpiryHelp = "When the certificate that is served expires, in seconds since 1970; absent while there is none."

	AuthorityExpiryName = "vicinity_webhook_certificate_authority_expiry_timestamp_seconds"
	authorityExpiryHelp = "When the certificate authority expires that signed it, in seconds since 1970; absent while it is not known."

	ConfigurationValidName = "vicinity_webhook_configuration_valid"
	configurationValidHelp = "1 if what is in force is what the file says; 0 while the file cannot be used, and what it said before is."

	ConfigurationSuccessName = "vicinity_webhook_configuration_last_success_timestamp_seconds"
	configurationSuccessHelp = "When the configuration was last put in force, in seconds since 1970."

	ConfigurationFailuresName = "vicinity_webhook_configuration_failures_total"
	configurationFailuresHelp = "Changes of the configuration file that could not be used."
)

// The labels.
const (
	PathLabel    = "path"    // on which a review came, such as /validate-services
	OutcomeLabel = "outcome" // what became of a review, such as denied
	RuleLabel    = "rule"    // the name of a rule, such as SVC001
	ActionLabel  = "action"  // one of Actions
	SourceLabel  = "source"  // who decided about a default, such as namespace
	SettingLabel = "setting" // what was added, such as topology-mode; Nothing
	ReasonLabel  = "reason"
)

// Nothing is the value of SettingLabel if nothing was added.
const Nothing = "none"

// Actions are the values of ActionLabel: a rule that is off is not counted.
var Actions = []string{"deny", "warn"}

// reviewDurationBuckets reach from a tenth of a millisecond, an easy review, to two seconds, after which the API server no longer
// waits. They are dense around 5 ms, where 99 of 100 should be.
var reviewDurationBuckets = []float64{
	0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2,
}
