package metrics

import (
	"github.com/vicinity-proxy/vicinity/pkg/webhook/certs"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/server"
)

// The metrics: a row has everything about one, except for what it counts (recorder.go) and for whom (README.md).
var (
	reviewDuration = declare(row{
		kind: histogram, name: "vicinity_webhook_review_duration_seconds", labels: []string{pathLabel, outcomeLabel},
		help: "How long it took to answer a request, from its headers to the last byte of the answer, by outcome. After an error the API " +
			"server follows failurePolicy.",
		start: [][]string{server.Paths(), server.Outcomes()},
		// From a tenth of a millisecond, an easy review, to two seconds, after which the API server no longer waits. They
		// are dense around 5 ms, where 99 of 100 should be.
		buckets: []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2},
	})
	decisions = declare(row{
		kind: counter, name: "vicinity_webhook_decisions_total", labels: []string{ruleLabel, actionLabel},
		help:  "Violations of rules that were reported to users, by rule and action.",
		start: [][]string{ruleIDs(), Actions},
	})
	defaulted = declare(row{
		kind: counter, name: "vicinity_webhook_defaulted_total", labels: []string{sourceLabel, settingLabel},
		help:  "Decisions about Services' defaults, by who decided and what was added: a setting, or none.",
		start: [][]string{texts(rules.Origins()), append(texts(rules.DefaultSettings()), Nothing)},
	})
	internalErrors = declare(row{
		kind: counter, name: "vicinity_webhook_internal_errors_total", labels: []string{reasonLabel},
		help:  "Failures on our side, such as of a review or of the renewal of a certificate; the log has them.",
		start: [][]string{failures()},
	})
	refusedRequests = declare(row{
		kind: counter, name: "vicinity_webhook_refused_requests_total", labels: []string{reasonLabel},
		help:  "Requests that were not reviews, too big, or too many at once; they were answered with a status of 4xx or 503.",
		start: [][]string{server.Refusals()},
	})
	inFlight = declare(row{
		kind: gauge, name: "vicinity_webhook_in_flight",
		help:  "Reviews that are being worked on at present.",
		start: atZero,
	})
	certificateExpiry = declare(row{
		kind: gauge, name: "vicinity_webhook_certificate_expiry_timestamp_seconds", labels: []string{certificateLabel},
		help: "When the certificate that is served expires, and the authority that signed it, in seconds since 1970; absent while there is " +
			"none, or it is unknown.",
	})
	configurationValid = declare(row{
		kind: gauge, name: "vicinity_webhook_configuration_valid",
		help:  "1 if the configuration file is in force; 0 while it cannot be used and the last good one is.",
		start: atZero,
	})
	configurationSuccess = declare(row{
		kind: gauge, name: "vicinity_webhook_configuration_last_success_timestamp_seconds",
		help: "When the configuration was last put in force, in seconds since 1970.",
	})
	topologySlices = declare(row{
		kind: gauge, name: "vicinity_webhook_topology_slices",
		help:  "TopologySlices that this replica publishes; 0 while another one does.",
		start: atZero,
	})
	topologyNodes = declare(row{
		kind: gauge, name: "vicinity_webhook_topology_nodes",
		help:  "Nodes that the published TopologySlices describe.",
		start: atZero,
	})
	topologyKeysLeftOut = declare(row{
		kind: gauge, name: "vicinity_webhook_topology_keys_left_out",
		help:  "Topology keys in use that are not published: there are too many, or they changed too often. The log says which and why.",
		start: atZero,
	})
	objectsWritten = declare(row{
		kind: counter, name: "vicinity_webhook_objects_written_total", labels: []string{resourceLabel, operationLabel},
		help:  "TopologySlices and ServiceDemands that were written. Every proxy that follows them receives each.",
		start: [][]string{{topologySlicesWritten, serviceDemandsWritten}, Operations},
	})
	topologyLag = declare(row{
		kind: histogram, name: "vicinity_webhook_topology_lag_seconds",
		help:  "How long a change of Nodes, or of the keys in use, waited until all was published.",
		start: atZero,
		// A change waits for others for a second.
		buckets: []float64{0.5, 1, 1.25, 1.5, 2, 3, 5, 10, 30, 60, 300},
	})
	topologyPublished = declare(row{
		kind: gauge, name: "vicinity_webhook_topology_published_timestamp_seconds",
		help: "When this replica last saw that everything is published, in seconds since 1970; absent until then.",
	})
)

// About Services whose load is bounded, from the replica that asks the proxies.
var (
	demandOffBy = declare(row{
		kind: gauge, name: "vicinity_webhook_demand_off_by_ratio", labels: serviceLabels,
		help: "How many times what bounds on load assume a zone asks of a Service, of the zone that is off the most.",
	})
	demandConnections = declare(row{
		kind: gauge, name: "vicinity_webhook_demand_connections_per_minute", labels: serviceLabels,
		help: "New connections to a Service in a minute, from all nodes.",
	})
	demandHeard = declare(row{
		kind: gauge, name: "vicinity_webhook_demand_nodes_heard_ratio",
		help: "Part of the nodes whose proxies said what was asked there; absent on replicas that do not ask.",
	})
	demandWaiting = declare(row{
		kind: gauge, name: "vicinity_webhook_demand_waiting",
		help:  "ServiceDemands that are to be written, and wait: the budget has no room, or they were written too often of late.",
		start: atZero,
	})
	demandWaitingSeconds = declare(row{
		kind: gauge, name: "vicinity_webhook_demand_waiting_seconds",
		help:  "How long the one of them has waited that has waited longest.",
		start: atZero,
	})
	demandChanges = declare(row{
		kind: counter, name: "vicinity_webhook_demand_changes_detected_total",
		help:  "Times that clients of a Service moved or grew at once, so that what was measured before no longer counted.",
		start: atZero,
	})
)

var serviceLabels = []string{"namespace", "service"}

// The labels.
const (
	pathLabel    = "path"    // on which a review came, such as /validate-services
	outcomeLabel = "outcome" // what became of a review, such as denied
	ruleLabel    = "rule"    // the name of a rule, such as SVC001
	actionLabel  = "action"  // one of Actions
	sourceLabel  = "source"  // who decided about a default, such as namespace
	settingLabel = "setting" // what was added, such as topology-mode; Nothing
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

// Nothing is the value of the label setting if nothing was added.
const Nothing = "none"

// Actions are the values of the label action: a rule that is off is not counted.
var Actions = []string{"deny", "warn"}

// The reasons of failed rounds of publishers among the internal errors.
const (
	TopologyFailure = "topology"
	DemandFailure   = "demand"
)

// failures are the reasons of internal errors.
func failures() []string {
	reasons := append(server.Failures(), TopologyFailure, DemandFailure)
	for _, operation := range certs.Operations() {
		reasons = append(reasons, certificateFailure(operation))
	}
	return reasons
}

func certificateFailure(operation certs.Operation) string { return "certificate-" + string(operation) }

func ruleIDs() []string {
	var ids []string
	for _, rule := range rules.Rules() {
		ids = append(ids, string(rule.ID))
	}
	return ids
}

func texts[T ~string](words []T) []string {
	list := make([]string, 0, len(words))
	for _, word := range words {
		list = append(list, string(word))
	}
	return list
}
