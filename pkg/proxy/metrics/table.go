package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/otherproxy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/reachability"
	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
)

// The labels.
const (
	familyLabel    = "ip_family"      // IPv4 or IPv6
	resourceLabel  = "resource"       // a Kubernetes resource, such as endpointslices; nodes/NAME is this node
	operationLabel = "operation"      // OperationAdd or OperationDelete
	kindLabel      = "kind"           // a Kubernetes kind, such as EndpointSlice
	policyLabel    = "traffic_policy" // PolicyInternal or PolicyExternal
	reasonLabel    = "reason"         // one of the codes that explain gives, an xds.Refusal, or an accounting.Why
	sysctlLabel    = "sysctl"         // a kernel setting, as sysctl(8) names it
	sourceLabel    = "source"         // of a demand: a balance.Source
	keyLabel       = "key"            // a topology key, as selection.Shares names them
	endLabel       = "end"            // EndTime or EndNone
	answersLabel   = "answers"        // AnswersYes, AnswersNo or AnswersNever
	outcomeLabel   = "outcome"        // a reachability.Outcome; of connections OutcomeAnswered and the like
	proxyLabel     = "proxy"          // one of otherproxy.Programs
	protocolLabel  = "protocol"       // TCP, UDP or SCTP
	typeLabel      = "type"           // of DNS records: A, AAAA, SRV or other; of resources of xDS
	resultLabel    = "result"         // a dns.Outcome or localhost.Outcome; LookComplete or LookCutOff; XDSSent or XDSRejected
	stageLabel     = "stage"          // stageNoticed or stageRepaired
	stateLabel     = "state"          // FlowUnanswered or FlowClosed
	localityLabel  = "locality"       // an accounting.Locality: where an endpoint is, seen from this node
	tierLabel      = "tier"           // the first topology key that an endpoint matches, "*", hint, none or other
	directionLabel = "direction"      // DirectionSent or DirectionReceived, by the client
	codeLabel      = "code"           // an HTTP status; "<error>" if there was no answer
	methodLabel    = "method"
	verbLabel      = "verb"
	hostLabel      = "host"
	versionLabel   = "version"
	goVersionLabel = "goversion"
)

// The values of the label operation.
const (
	OperationAdd    = "add"
	OperationDelete = "delete"
)

// The values of the label traffic_policy: internalTrafficPolicy governs the ClusterIP, externalTrafficPolicy every
// other frontend.
const (
	PolicyInternal = "internal"
	PolicyExternal = "external"
)

// The values of the label end.
const (
	EndTime = "time"
	EndNone = "none"
)

// The values of the label stage.
const (
	stageNoticed  = "noticed"
	stageRepaired = "repaired"
)

// The values of the label state.
const (
	FlowUnanswered = "unanswered"
	FlowClosed     = "closed"
)

// The values of the label result of looks at conntrack, and of responses to clients of xDS.
const (
	LookComplete = "complete"
	LookCutOff   = "cut_off"
	XDSSent      = "sent"
	XDSRejected  = "rejected"
)

// The values of the label answers.
const (
	AnswersYes   = "yes"
	AnswersNo    = "no"
	AnswersNever = "never"
)

// The values of the label outcome of connections.
const (
	OutcomeAnswered   = "answered"
	OutcomeRefused    = "refused"
	OutcomeUnanswered = "unanswered"
)

// The values of the label direction.
const (
	DirectionSent     = "sent"
	DirectionReceived = "received"
)

// The labels of traffic: where it is from and to, and which Service it belongs to.
var (
	zoneLabels    = []string{"source_zone", "destination_zone", directionLabel}
	serviceLabels = []string{"namespace", "service", localityLabel, tierLabel}
)

// topologyResources are the values of the label resource: the possible sources of where nodes are.
var topologyResources = func() (names []string) {
	for _, resource := range model.TopologyResources {
		names = append(names, resource.Name)
	}
	return names
}()

// findingCodes are the values of the label reason of findings.
var findingCodes = func() (codes []string) {
	for _, code := range model.FindingCodes {
		codes = append(codes, string(code))
	}
	return codes
}()

// otherProxies are the values of the label proxy.
var otherProxies = otherproxy.IDs()

// families are the values of the label ip_family.
var families = []string{"IPv4", "IPv6"}

// What rows have in common, before the rows: a row that needs a later variable would be initialised after it, and out
// of order.
var (
	perFamily   = [][]string{families}
	connected   = [][]string{{model.TCP.String(), model.SCTP.String()}} // protocols with connections
	answerCodes = [][]string{{"200", "503"}}

	// syncBuckets are kube-proxy's: 1 ms, doubled up to 16.384 s.
	syncBuckets = prometheus.ExponentialBuckets(0.001, 2, 15)
)

// The metrics that mean the same as kube-proxy's of the same name.
var (
	syncDuration = histogram(row{
		name:   "kubeproxy_sync_proxy_rules_duration_seconds",
		help:   "How long each attempt to update the kernel took, failed ones included.",
		labels: []string{familyLabel}, start: perFamily, buckets: syncBuckets,
	})
	fullSyncDuration = histogram(row{
		name:   "kubeproxy_sync_full_proxy_rules_duration_seconds",
		help:   "How long each attempt to write everything took, failed ones included.",
		labels: []string{familyLabel}, start: perFamily, buckets: syncBuckets,
	})
	partialSyncDuration = histogram(row{
		name:   "kubeproxy_sync_partial_proxy_rules_duration_seconds",
		help:   "How long each attempt to write what changed took, failed ones included.",
		labels: []string{familyLabel}, start: perFamily, buckets: syncBuckets,
	})
	lastSync = gauge(row{
		name:   "kubeproxy_sync_proxy_rules_last_timestamp_seconds",
		help:   "When the kernel was last updated, in seconds since 1970.",
		labels: []string{familyLabel},
	})
	lastQueued = gauge(row{
		name:   "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
		help:   "When a change last asked for a sync, in seconds since 1970.",
		labels: []string{familyLabel},
	})
	programmingDuration = histogram(row{
		name: "kubeproxy_network_programming_duration_seconds",
		help: "How long it took from the cause of an EndpointSlice's change, such as a pod that became ready, until the " +
			"kernel had the change.",
		labels: []string{familyLabel}, start: perFamily, buckets: programmingBuckets(),
	})
	endpointChangesPending = gauge(row{
		name: "kubeproxy_sync_proxy_rules_endpoint_changes_pending",
		help: "Changes of EndpointSlices that were taken up and that the kernel does not have yet.",
	})
	endpointChanges = counter(row{
		name: "kubeproxy_sync_proxy_rules_endpoint_changes_total",
		help: "Changes of EndpointSlices that were taken up.",
	})
	serviceChangesPending = gauge(row{
		name: "kubeproxy_sync_proxy_rules_service_changes_pending",
		help: "Changes of Services that were taken up and that the kernel does not have yet.",
	})
	serviceChanges = counter(row{
		name: "kubeproxy_sync_proxy_rules_service_changes_total",
		help: "Changes of Services that were taken up, each once, whatever its families are.",
	})
	// NoLocalEndpoints ends in _total although it is a gauge: the name is kube-proxy's.
	NoLocalEndpoints = gauge(row{
		name:   "kubeproxy_sync_proxy_rules_no_local_endpoints_total",
		help:   "Service ports whose traffic a Local policy keeps on this node, where no endpoint can take it, while others could.",
		labels: []string{familyLabel, policyLabel}, start: [][]string{families, {PolicyInternal, PolicyExternal}},
	})
	syncFailures = counter(row{
		name:   "kubeproxy_sync_proxy_rules_nftables_sync_failures_total",
		help:   "Syncs that the kernel did not take.",
		labels: []string{familyLabel}, start: perFamily,
	})
	cleanupFailures = counter(row{
		name:   "kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total",
		help:   "Sweeps of unused entries that the kernel did not take; the next sync tries again.",
		labels: []string{familyLabel}, start: perFamily,
	})
	FlowsDuration = histogram(row{
		name:   "kubeproxy_conntrack_reconciler_sync_duration_seconds",
		help:   "How long it took to look at the UDP flows of some frontends and to end stale ones, if it succeeded.",
		labels: []string{familyLabel}, start: perFamily, buckets: syncBuckets,
	})
	FlowsEnded = counter(row{
		name:   "kubeproxy_conntrack_reconciler_deleted_entries_total",
		help:   "UDP flows that were ended because the endpoint they went to may not answer them any more.",
		labels: []string{familyLabel}, start: perFamily,
	})
	WatchedNodes = gauge(row{
		name: "vicinity_watched_nodes",
		help: "Other nodes, by IP family and by whether they answer this one: yes; no, while others do; or never, if the node has not " +
			"answered any probe, so that nothing is concluded from its silence.",
		labels: []string{familyLabel, answersLabel}, start: [][]string{families, {AnswersYes, AnswersNo, AnswersNever}},
	})
	NodeSuspicions = counter(row{
		name: "vicinity_node_suspicions_total",
		help: "Suspicions that a node does not answer, by how they ended: it answers, connections to it are answered, nobody answers, or " +
			"it does not answer.",
		labels: []string{familyLabel, outcomeLabel}, start: [][]string{families, reachability.Outcomes},
	})
	UnansweredFlows = gauge(row{
		name: "vicinity_unanswered_flows",
		help: "Connections to Services that had no answer when they were looked at last, at most as many as a look reads.",
	})
	LocalhostListeners = gauge(row{
		name:   "kubeproxy_nftables_localhost_nodeport_listeners",
		help:   "Node ports that the proxy listens on at loopback at present.",
		labels: []string{familyLabel}, start: perFamily,
	})
	LocalhostListenFailures = counter(row{
		name:   "kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total",
		help:   "Failed attempts to listen on a node port at loopback.",
		labels: []string{familyLabel}, start: perFamily,
	})
	LocalhostRejected = counterFunc(row{
		name:   "kubeproxy_nftables_localhost_nodeport_rejected_packets_total",
		help:   "Packets to node ports on loopback that were refused, because the proxy does not serve their protocol there.",
		labels: []string{familyLabel, protocolLabel},
	})
	healthz = counter(row{
		name:   "kubeproxy_proxy_healthz_total",
		help:   "Answers that /healthz gave, by HTTP status.",
		labels: []string{codeLabel}, start: answerCodes,
	})
	livez = counter(row{
		name:   "kubeproxy_proxy_livez_total",
		help:   "Answers that /livez gave, by HTTP status.",
		labels: []string{codeLabel}, start: answerCodes,
	})
)

// The metrics of every program that asks an API server with client-go.
var (
	apiRequests = counter(row{
		name:   "rest_client_requests_total",
		help:   "Requests to the API server, by HTTP status, method and host.",
		labels: []string{codeLabel, methodLabel, hostLabel},
	})
	apiRequestDuration = histogram(row{
		name:   "rest_client_request_duration_seconds",
		help:   "How long requests to the API server took, by verb and host.",
		labels: []string{verbLabel, hostLabel},
		// Those of every Kubernetes component.
		buckets: []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60},
	})
)

// The metrics that only Vicinity has.
var (
	BuildInfo = gauge(row{
		name:   "vicinity_build_info",
		help:   "Always 1; the labels say what runs.",
		labels: []string{versionLabel, goVersionLabel},
	})
	ElementsWritten = counter(row{
		name:   "vicinity_nft_elements_written_total",
		help:   "Elements of nftables sets and maps that were added to or deleted from the kernel.",
		labels: []string{familyLabel, operationLabel}, start: [][]string{families, {OperationAdd, OperationDelete}},
	})
	// Findings counts what the page /findings lists.
	Findings = gauge(row{
		name: "vicinity_findings",
		help: "Problems with objects at present, by the reason of their Events, such as Refused, RefusedByKernel or FrontendConflict; the " +
			"page /findings lists them. Of those that syncs find, the ones that they reported.",
		labels: []string{reasonLabel}, start: [][]string{findingCodes},
	})
	foreignChanges = counter(row{
		name: "vicinity_foreign_changes_total",
		help: "Changes to our nftables tables that another process made: counted as noticed, and as repaired when everything had been " +
			"written again.",
		labels: []string{familyLabel, stageLabel}, start: [][]string{families, {stageNoticed, stageRepaired}},
	})
	OtherProxies = gauge(row{
		name:   "vicinity_other_service_proxies",
		help:   "1 while another service proxy has rules on this node that may translate connections before ours; the log says what to do.",
		labels: []string{proxyLabel}, start: [][]string{otherProxies},
	})
	EventsDropped = counterFunc(row{
		name: "vicinity_events_dropped_total",
		help: "Kubernetes Events that were not sent: too many were waiting, or the API server rejected them.",
	})
	NodeConditionUnwritten = gauge(row{
		name: "vicinity_node_condition_unwritten",
		help: "1 while the Node's condition vicinity.dev/ServicesReady is outdated and cannot be written; the log says why.",
	})
	ServicesWaiting = gauge(row{
		name: "vicinity_services_waiting",
		help: "Services whose change waits for its turn: large ones are written in steps, and many that change together in turns.",
	})
	Services = gauge(row{
		name: "vicinity_services",
		help: "Services that are proxied at present.",
	})
	ServicePortsByReason = gaugeFunc(row{
		name:   "vicinity_service_ports_by_reason",
		help:   "Service ports that are proxied at present, by why they have the endpoints that they have on this node.",
		labels: []string{familyLabel, policyLabel, reasonLabel},
	})
	ServicePortsByDemand = gauge(row{
		name: "vicinity_service_ports_by_demand",
		help: "Service ports whose load is bounded, by the demand that they are planned with on this node: what was measured, the endpoints of " +
			"named clients, or the labels of Nodes.",
		labels: []string{sourceLabel}, start: [][]string{{balance.Measurement.String(), balance.Clients.String(), balance.Labels.String()}},
	})
	ExpectedTraffic = gaugeFunc(row{
		name: "vicinity_expected_traffic_ratio",
		help: "Which part of this node's new connections goes to the endpoints that a topology key matches and no earlier key does: " +
			"the mean over the Service ports whose load is bounded.",
		labels: []string{keyLabel},
	})
	KernelSettingsUnmet = gaugeFunc(row{
		name: "vicinity_kernel_settings_unmet",
		help: "1 while a kernel setting is not as the proxy needs it, and cannot be changed from there, or is up to the administrator; the " +
			"log and 'proxy status' say what to do.",
		labels: []string{sysctlLabel},
	})
	EvacuatedNodes = gauge(row{
		name:   "vicinity_evacuated_nodes",
		help:   "Nodes that are being evacuated at present: until a time, or without an end.",
		labels: []string{endLabel}, start: [][]string{{EndTime, EndNone}},
	})
	FlowsForgotten = counter(row{
		name: "vicinity_flows_forgotten_total",
		help: "Connections to an endpoint that left, and that were forgotten, so that the client's next packet reaches another endpoint: " +
			"dials without an answer, or closed ones, whose port a client may use again.",
		labels: []string{protocolLabel, stateLabel}, start: append(slices.Clip(connected), []string{FlowUnanswered, FlowClosed}),
	})
	ConntrackLooks = histogram(row{
		name: "vicinity_conntrack_look_duration_seconds",
		help: "How long it took to read conntrack, for all who wanted something of it at the time: a complete look, or one that was cut off, " +
			"because there was more than one look reads.",
		labels: []string{resultLabel}, start: [][]string{{LookComplete, LookCutOff}}, buckets: syncBuckets,
	})
	DNSRequests = counter(row{
		name:   "vicinity_dns_requests_total",
		help:   "Queries to --dns-bind-address, by the type of record and by outcome.",
		labels: []string{typeLabel, resultLabel}, start: [][]string{{"A", "AAAA", "SRV"}, {"answered", "empty", "refused"}},
	})
	LocalhostConnections = counter(row{
		name:   "vicinity_localhost_nodeport_connections_total",
		help:   "Connections to node ports on loopback, by outcome.",
		labels: []string{familyLabel, resultLabel}, start: [][]string{families, {"forwarded", "unreachable", "full"}},
	})
	DNSServices = gaugeFunc(row{
		name: "vicinity_dns_services",
		help: "Headless Services that DNS answers for at present.",
	})
	XDSStreams = gaugeFunc(row{
		name: "vicinity_xds_streams",
		help: "Streams of clients of --xds-bind-address at present. A gRPC client has one for each Service that it dials.",
	})
	XDSNames = gaugeFunc(row{
		name: "vicinity_xds_names",
		help: "Names of resources that clients of --xds-bind-address ask for at present: each stream one of each kind for a Service port.",
	})
	XDSResponses = counterFunc(row{
		name: "vicinity_xds_responses_total",
		help: "Responses to clients of --xds-bind-address, by the type of resources: all that were sent, and those that a client rejected " +
			"(NACK), which keeps what it knew. The log has its reason.",
		labels: []string{typeLabel, resultLabel},
	})
	XDSRefused = counterFunc(row{
		name:   "vicinity_xds_refused_total",
		help:   "Connections, streams, requests and names of clients of --xds-bind-address that were refused, by the reason.",
		labels: []string{reasonLabel},
	})
	nodeTopology = gauge(row{
		name:   "vicinity_node_topology",
		help:   "1 for the source of other nodes' labels; 0 for all while no Service needs them.",
		labels: []string{resourceLabel}, start: [][]string{topologyResources},
	})
	demandAge = gaugeFunc(row{
		name: "vicinity_demand_age_seconds",
		help: "How long ago what was measured of Services was published last, as far as it is known; absent while nobody publishes it, or " +
			"no Service is planned with it.",
	})
	watchInterrupted = gauge(row{
		name:   "vicinity_watch_interrupted_timestamp_seconds",
		help:   "Since when the watch of a resource has been interrupted, in seconds since 1970; absent while it works.",
		labels: []string{resourceLabel},
	})
)

// The metrics of --account. While that is off they have no series, or are zero.
var (
	Connections = counterFunc(row{
		name: "vicinity_connections_total",
		help: "Connections that this node led to an endpoint, by where the endpoint is seen from here, by the first topology key that it " +
			"matches, and by whether the endpoint answered, refused with a reset, or stayed silent. " + late,
		labels: []string{localityLabel, tierLabel, outcomeLabel},
	})
	Traffic = counterFunc(row{
		name:   "vicinity_traffic_bytes_total",
		help:   "Bytes of these connections, IP headers included, that clients sent and received. " + late,
		labels: []string{localityLabel, tierLabel, directionLabel},
	})
	ZoneTraffic = counterFunc(row{
		name:   "vicinity_zone_traffic_bytes_total",
		help:   "The same by this node's zone and the endpoint's; empty where it is not known. " + late,
		labels: zoneLabels,
	})
	ServiceConnections = counterFunc(row{
		name: "vicinity_service_connections_total",
		help: "Connections as in vicinity_connections_total, by Service, with --account=services; without a name those of Services " +
			"beyond its number. " + late,
		labels: append(slices.Clone(serviceLabels), outcomeLabel),
	})
	ServiceTraffic = counterFunc(row{
		name:   "vicinity_service_traffic_bytes_total",
		help:   "Bytes as in vicinity_traffic_bytes_total, by Service. " + late,
		labels: append(slices.Clone(serviceLabels), directionLabel),
	})
	NotCounted = counterFunc(row{
		name: "vicinity_accounting_not_counted_total",
		help: "Connections that were not counted, or not wholly. lost_end: their end came faster than it was read; of all connections of " +
			"this node, to Services or not. other_program: that translated them, such as a port mapping. counters_reset: it set " +
			"conntrack's counters to zero, and bytes are missing. no_counters: conntrack counted no bytes when they began.",
		labels: []string{reasonLabel},
	})
)

// late is why the metrics of --account lag.
const late = "They count when their entry in conntrack ends, up to two minutes after the last packet; long ones each minute."

// programmingBuckets are kube-proxy's, which the scale tests of Kubernetes read: half a second around the first
// second, each second of the first minute, five seconds up to two minutes, half a minute up to five.
func programmingBuckets() []float64 {
	buckets := []float64{0.25, 0.5}
	for bound := 1.0; bound < 60; bound++ {
		buckets = append(buckets, bound)
	}
	for bound := 60.0; bound < 120; bound += 5 {
		buckets = append(buckets, bound)
	}
	for bound := 120.0; bound <= 300; bound += 30 {
		buckets = append(buckets, bound)
	}
	return buckets
}
