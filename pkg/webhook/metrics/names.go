package metrics

import (
	"github.com/vicinity-proxy/vicinity/pkg/webhook/certs"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/server"
)

// The metrics. Each row defines one metric; recorder.go updates them, and README.md describes their use.
var (
	reviewDuration = declare(row{
		kind: histogram, name: "vicinity_webhook_review_duration_seconds", labels: []string{pathLabel, outcomeLabel},
		help: "Time taken to respond to a request, from its headers to the last byte of the response, by outcome. After an error the " +
			"API server follows failurePolicy.",
		initialValues: [][]string{server.Paths(), server.Outcomes()},
		// From a tenth of a millisecond, for a simple review, to two seconds, after which the API server no longer waits.
		// They are dense around 5 ms, the target for p99.
		buckets: []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2},
	})
	violations = declare(row{
		kind: counter, name: "vicinity_webhook_violations_total", labels: []string{ruleLabel, actionLabel},
		help:          "Number of rule violations reported to users, by rule and action.",
		initialValues: [][]string{ruleIDs(), Actions},
	})
	defaultingDecisions = declare(row{
		kind: counter, name: "vicinity_webhook_defaulting_decisions_total", labels: []string{sourceLabel, settingLabel},
		help:          "Number of decisions about Services' defaults, by the source of the decision and the setting that was added, or none.",
		initialValues: [][]string{toStrings(rules.DefaultSources()), append(toStrings(rules.DefaultSettings()), NoSetting)},
	})
	internalErrors = declare(row{
		kind: counter, name: "vicinity_webhook_internal_errors_total", labels: []string{reasonLabel},
		help:          "Number of internal errors, such as in a review or in the renewal of a certificate; the log has details.",
		initialValues: [][]string{errorReasons()},
	})
	rejectedRequests = declare(row{
		kind: counter, name: "vicinity_webhook_rejected_requests_total", labels: []string{reasonLabel},
		help:          "Number of requests that were rejected with a status of 4xx or 503: not a review, too large, or too many at once.",
		initialValues: [][]string{server.RejectionReasons()},
	})
	inFlight = declare(row{
		kind: gauge, name: "vicinity_webhook_requests_in_flight",
		help:          "Number of reviews in progress.",
		initialValues: initZero,
	})
	certificateExpiry = declare(row{
		kind: gauge, name: "vicinity_webhook_certificate_expiry_timestamp_seconds", labels: []string{certificateLabel},
		help: "Time at which the served certificate, and the authority that signed it, expire, in seconds since 1970; absent if unavailable.",
	})
	configurationValid = declare(row{
		kind: gauge, name: "vicinity_webhook_configuration_valid",
		help:          "Whether the configuration file is valid and applied; 0 while it is invalid and the last valid one is applied.",
		initialValues: initZero,
	})
	configurationSuccess = declare(row{
		kind: gauge, name: "vicinity_webhook_configuration_last_success_timestamp_seconds",
		help: "Time at which a configuration was last applied, in seconds since 1970.",
	})
	topologySlices = declare(row{
		kind: gauge, name: "vicinity_webhook_topology_slices",
		help:          "Number of TopologySlices that this replica publishes; 0 while another one does.",
		initialValues: initZero,
	})
	topologyNodes = declare(row{
		kind: gauge, name: "vicinity_webhook_topology_nodes",
		help:          "Number of Nodes in the published TopologySlices.",
		initialValues: initZero,
	})
	topologyKeysUnpublished = declare(row{
		kind: gauge, name: "vicinity_webhook_topology_keys_unpublished",
		help:          "Number of topology keys in use that are not published: too many, or changed too often. The log has keys and reasons.",
		initialValues: initZero,
	})
	objectsWritten = declare(row{
		kind: counter, name: "vicinity_webhook_objects_written_total", labels: []string{resourceLabel, operationLabel},
		help:          "Number of writes of TopologySlices and ServiceDemands. Every proxy that watches them receives each.",
		initialValues: [][]string{{topologySlicesWritten, serviceDemandsWritten}, Operations},
	})
	topologyLag = declare(row{
		kind: histogram, name: "vicinity_webhook_topology_lag_seconds",
		help:          "Time until a change of Nodes, or of the keys in use, was published.",
		initialValues: initZero,
		// The first change waits one second for others.
		buckets: []float64{0.5, 1, 1.25, 1.5, 2, 3, 5, 10, 30, 60, 300},
	})
	topologyPublished = declare(row{
		kind: gauge, name: "vicinity_webhook_topology_published_timestamp_seconds",
		help: "Time at which this replica last found everything published, in seconds since 1970; absent until then.",
	})
)

// Metrics of Services with a load bound, from the replica that pulls demand from the proxies.
var (
	demandOverload = declare(row{
		kind: gauge, name: "vicinity_webhook_demand_overload_ratio", labels: serviceLabels,
		help: "Ratio of the load of a Service's busiest endpoint to its load bound, if planned with assumed demand; absent if no zone has " +
			"more than 1.25 times its assumed share of the demand.",
	})
	demandConnections = declare(row{
		kind: gauge, name: "vicinity_webhook_demand_connections_per_second", labels: serviceLabels,
		help: "Number of new connections per second to a Service, from all nodes.",
	})
	demandReporting = declare(row{
		kind: gauge, name: "vicinity_webhook_demand_reporting_nodes_ratio",
		help: "Ratio of the nodes whose proxies reported demand to all nodes; absent on replicas that do not collect it.",
	})
	demandUnreported = declare(row{
		kind: gauge, name: "vicinity_webhook_demand_unreported_nodes",
		help:          "Number of nodes whose proxy is ready and never reported demand; their zones have at least the assumed demand.",
		initialValues: initZero,
	})
	demandQueueDepth = declare(row{
		kind: gauge, name: "vicinity_webhook_demand_queue_depth",
		help:          "Number of ServiceDemands queued for writing, because the budget is exhausted.",
		initialValues: initZero,
	})
	demandLongestQueued = declare(row{
		kind: gauge, name: "vicinity_webhook_demand_longest_queued_seconds",
		help:          "Time for which the oldest queued ServiceDemand has waited.",
		initialValues: initZero,
	})
	demandChangePoints = declare(row{
		kind: counter, name: "vicinity_webhook_demand_change_points_total",
		help:          "Number of change points: a Service's clients moved or grew at once, so earlier measurements no longer count.",
		initialValues: initZero,
	})
)

var serviceLabels = []string{"namespace", "service"}

// The label names.
const (
	pathLabel    = "path"    // of the review, such as /validate-services
	outcomeLabel = "outcome" // of the review, such as denied
	ruleLabel    = "rule"    // the ID of a rule, such as SVC001
	actionLabel  = "action"  // one of Actions
	sourceLabel  = "source"  // of the decision about a default, such as namespace
	settingLabel = "setting" // the added setting, such as topology-mode; or NoSetting
	reasonLabel  = "reason"

	operationLabel   = "operation"   // one of Operations
	resourceLabel    = "resource"    // topologySlicesWritten or serviceDemandsWritten
	certificateLabel = "certificate" // servedCertificate or authorityCertificate
)

// The values of the label resource.
const (
	topologySlicesWritten = "topologyslices"
	serviceDemandsWritten = "servicedemands"
)

// The values of the label certificate.
const (
	servedCertificate    = "served"
	authorityCertificate = "authority"
)

// Operations are the values of the label operation.
var Operations = []string{"create", "update", "delete"}

// NoSetting is the value of the label setting if nothing was added.
const NoSetting = "none"

// Actions are the values of the label action. Rules that are off are not counted.
var Actions = []string{"deny", "warn"}

// The reasons for failed rounds of publishers, among the internal errors.
const (
	TopologyFailure = "topology"
	DemandFailure   = "demand"
)

// errorReasons returns the reasons of internal errors.
func errorReasons() []string {
	reasons := append(server.Failures(), TopologyFailure, DemandFailure)
	for _, operation := range certs.Operations() {
		reasons = append(reasons, certificateReason(operation))
	}
	return reasons
}

func certificateReason(operation certs.Operation) string { return "certificate_" + string(operation) }

func ruleIDs() []string {
	var ids []string
	for _, rule := range rules.Rules() {
		ids = append(ids, string(rule.ID))
	}
	return ids
}

func toStrings[T ~string](values []T) []string {
	list := make([]string, 0, len(values))
	for _, value := range values {
		list = append(list, string(value))
	}
	return list
}
