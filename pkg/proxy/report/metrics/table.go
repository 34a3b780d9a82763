package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/competing"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/traffic/reachability"
	"github.com/vicinity-proxy/vicinity/pkg/selection/balance"
)

// The labels.
const (
	familyLabel    = "ip_family"      // IPv4 or IPv6
	resourceLabel  = "resource"       // a Kubernetes resource, such as endpointslices; nodes/NAME is this node
	operationLabel = "operation"      // OperationAdd or OperationDelete
	kindLabel      = "kind"           // a Kubernetes kind, such as EndpointSlice
	policyLabel    = "traffic_policy" // PolicyInternal or PolicyExternal
	reasonLabel    = "reason"         // a code of explain, a model.FindingCode, an xds.RejectReason, or an accounting.MissReason
	sysctlLabel    = "sysctl"         // a kernel setting, as sysctl(8) names it
	sourceLabel    = "source"         // of other nodes' labels: one of model.TopologyResources
	demandLabel    = "demand_source"  // a balance.Source
	keyLabel       = "key"            // a topology key, as selection.Shares names them
	endLabel       = "end"            // EndTime or EndNone
	outcomeLabel   = "outcome"        // a reachability.Outcome; of connections OutcomeReplied and the like
	proxyLabel     = "proxy"          // one of competing.Programs
	protocolLabel  = "protocol"       // TCP, UDP or SCTP
	typeLabel      = "type"           // of DNS records: A, AAAA, SRV or other; of resources of xDS
	resultLabel    = "result"         // dns.Outcome or localhost.Outcome; DumpComplete, DumpTruncated; XDSSent, XDSNACKed
	stageLabel     = "stage"          // stageDetected or stageRepaired
	stateLabel     = "state"          // FlowUnreplied, FlowClosed; StateReachable, StateUnreachable, StateWithoutBaseline
	localityLabel  = "locality"       // a serviceindex.Proximity
	tierLabel      = "tier"           // the first topology key that an endpoint matches, "*", hint, none or other
	directionLabel = "direction"      // DirectionSent or DirectionReceived, by the client
	codeLabel      = "code"           // an HTTP status; "<error>" if there was no response
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
	stageDetected = "detected"
	stageRepaired = "repaired"
)

// The values of the label state of conntrack entries.
const (
	FlowUnreplied = "unreplied"
	FlowClosed    = "closed"
)

// The values of the label result of conntrack dumps, and of responses to xDS clients.
const (
	DumpComplete  = "complete"
	DumpTruncated = "truncated"
	XDSSent       = "sent"
	XDSNACKed     = "nacked"
)

// The values of the label state of nodes.
const (
	StateReachable       = "reachable"
	StateUnreachable     = "unreachable"
	StateWithoutBaseline = "without_baseline"
)

// The values of the label outcome of connections.
const (
	OutcomeReplied   = "replied"
	OutcomeRefused   = "refused"
	OutcomeUnreplied = "unreplied"
)

// The values of the label direction.
const (
	DirectionSent     = "sent"
	DirectionReceived = "received"
)

// The labels of traffic: its zones, and the Service.
var (
	zoneLabels    = []string{"source_zone", "destination_zone", directionLabel}
	serviceLabels = []string{"namespace", "service", localityLabel, tierLabel}
)

// topologyResources are the values of the label source: the possible sources of other nodes' labels.
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
var otherProxies = competing.IDs()

// families are the values of the label ip_family.
var families = []string{"IPv4", "IPv6"}

// Shared values come before the rows: a row that needs a later variable would be initialised after it, and out of
// order.
var (
	perFamily           = [][]string{families}
	connectionProtocols = [][]string{{model.TCP.String(), model.SCTP.String()}} // protocols with connections
	responseCodes       = [][]string{{"200", "503"}}

	// syncBuckets are kube-proxy's: 1 ms, doubled up to 16.384 s.
	syncBuckets = prometheus.ExponentialBuckets(0.001, 2, 15)
)

// The metrics that mean the same as kube-proxy's of the same name.
var (
	syncDuration = histogram(row{
		name:   "kubeproxy_sync_proxy_rules_duration_seconds",
		help:   "Time taken by syncs, failed ones included.",
		labels: []string{familyLabel}, start: perFamily, buckets: syncBuckets,
	})
	fullSyncDuration = histogram(row{
		name:   "kubeproxy_sync_full_proxy_rules_duration_seconds",
		help:   "Time taken by full syncs, failed ones included.",
		labels: []string{familyLabel}, start: perFamily, buckets: syncBuckets,
	})
	partialSyncDuration = histogram(row{
		name:   "kubeproxy_sync_partial_proxy_rules_duration_seconds",
		help:   "Time taken by partial syncs, failed ones included.",
		labels: []string{familyLabel}, start: perFamily, buckets: syncBuckets,
	})
	lastSync = gauge(row{
		name:   "kubeproxy_sync_proxy_rules_last_timestamp_seconds",
		help:   "Time of the last successful sync, in seconds since 1970.",
		labels: []string{familyLabel},
	})
	lastQueued = gauge(row{
		name:   "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
		help:   "Unix time of the last request for a sync: a change, a repair or a retry.",
		labels: []string{familyLabel},
	})
	programmingDuration = histogram(row{
		name:   "kubeproxy_network_programming_duration_seconds",
		help:   "Time taken from the cause of an EndpointSlice's change, such as a pod that became ready, until the kernel had the change.",
		labels: []string{familyLabel}, start: perFamily, buckets: programmingBuckets(),
	})
	endpointChangesPending = gauge(row{
		name: "kubeproxy_sync_proxy_rules_endpoint_changes_pending",
		help: "Number of received EndpointSlice changes that the kernel does not have yet.",
	})
	endpointChanges = counter(row{
		name: "kubeproxy_sync_proxy_rules_endpoint_changes_total",
		help: "Number of received EndpointSlice changes.",
	})
	serviceChangesPending = gauge(row{
		name: "kubeproxy_sync_proxy_rules_service_changes_pending",
		help: "Number of received Service changes that the kernel does not have yet.",
	})
	serviceChanges = counter(row{
		name: "kubeproxy_sync_proxy_rules_service_changes_total",
		help: "Number of received Service changes. A change counts once, whatever the IP families of the Service.",
	})
	// NoLocalEndpoints ends in _total although it is a gauge: the name is kube-proxy's.
	NoLocalEndpoints = gauge(row{
		name:   "kubeproxy_sync_proxy_rules_no_local_endpoints_total",
		help:   "Number of Service ports whose traffic a Local policy drops: this node has no usable endpoint, and other nodes have one.",
		labels: []string{familyLabel, policyLabel}, start: [][]string{families, {PolicyInternal, PolicyExternal}},
	})
	syncFailures = counter(row{
		name:   "kubeproxy_sync_proxy_rules_nftables_sync_failures_total",
		help:   "Number of failed syncs.",
		labels: []string{familyLabel}, start: perFamily,
	})
	cleanupFailures = counter(row{
		name:   "kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total",
		help:   "Number of failed cleanups of unused chains, sets and elements; the next sync retries.",
		labels: []string{familyLabel}, start: perFamily,
	})
	UDPReconcileDuration = histogram(row{
		name:   "kubeproxy_conntrack_reconciler_sync_duration_seconds",
		help:   "Time taken to reconcile the UDP conntrack entries of some frontends; only successful attempts.",
		labels: []string{familyLabel}, start: perFamily, buckets: syncBuckets,
	})
	UDPEntriesDeleted = counter(row{
		name:   "kubeproxy_conntrack_reconciler_deleted_entries_total",
		help:   "Number of UDP conntrack entries deleted because their endpoint no longer serves the frontend.",
		labels: []string{familyLabel}, start: perFamily,
	})
	ReachabilityTargets = gauge(row{
		name: "vicinity_reachability_targets",
		help: "Number of other nodes by state: reachable; unreachable, while others are reachable; or without_baseline: the node has " +
			"never replied to a probe, so missing replies prove nothing.",
		labels: []string{familyLabel, stateLabel}, start: [][]string{families, {StateReachable, StateUnreachable, StateWithoutBaseline}},
	})
	NodeSuspicions = counter(row{
		name: "vicinity_reachability_suspicions_total",
		help: "Number of suspicions that a node is unreachable, by outcome: replied; flows_replied, only probes are dropped; isolated, " +
			"no node replies to this one; or unreachable.",
		labels: []string{familyLabel, outcomeLabel}, start: [][]string{families, reachability.Outcomes},
	})
	UnrepliedFlows = gauge(row{
		name: "vicinity_conntrack_unreplied_entries",
		help: "Number of unreplied Service connections found by the last conntrack dump (capped at 8192).",
	})
	LocalhostListeners = gauge(row{
		name:   "kubeproxy_nftables_localhost_nodeport_listeners",
		help:   "Number of node ports that the proxy listens on at loopback.",
		labels: []string{familyLabel}, start: perFamily,
	})
	LocalhostListenFailures = counter(row{
		name:   "kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total",
		help:   "Number of failed attempts to listen on a node port at loopback.",
		labels: []string{familyLabel}, start: perFamily,
	})
	LocalhostRejected = counterFunc(row{
		name:   "kubeproxy_nftables_localhost_nodeport_rejected_packets_total",
		help:   "Number of packets to node ports on loopback that were rejected because the proxy does not serve their protocol there.",
		labels: []string{familyLabel, protocolLabel},
	})
	healthz = counter(row{
		name:   "kubeproxy_proxy_healthz_total",
		help:   "Number of responses of /healthz, by HTTP status.",
		labels: []string{codeLabel}, start: responseCodes,
	})
	livez = counter(row{
		name:   "kubeproxy_proxy_livez_total",
		help:   "Number of responses of /livez, by HTTP status.",
		labels: []string{codeLabel}, start: responseCodes,
	})
)

// The metrics of every program that sends requests to an API server with client-go.
var (
	apiRequests = counter(row{
		name:   "rest_client_requests_total",
		help:   "Number of requests to the API server, by HTTP status, method and host.",
		labels: []string{codeLabel, methodLabel, hostLabel},
	})
	apiRequestDuration = histogram(row{
		name:   "rest_client_request_duration_seconds",
		help:   "Time taken by requests to the API server, by verb and host.",
		labels: []string{verbLabel, hostLabel},
		// The same as in every Kubernetes component.
		buckets: []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60},
	})
)

// The metrics that only Vicinity has.
var (
	BuildInfo = gauge(row{
		name:   "vicinity_build_info",
		help:   "Always 1; the labels are the versions of the proxy and of Go.",
		labels: []string{versionLabel, goVersionLabel},
	})
	ElementsWritten = counter(row{
		name:   "vicinity_nft_elements_written_total",
		help:   "Number of elements of nftables sets and maps that were added to or deleted from the kernel.",
		labels: []string{familyLabel, operationLabel}, start: [][]string{families, {OperationAdd, OperationDelete}},
	})
	// Findings counts the findings of the page /findings.
	Findings = gauge(row{
		name: "vicinity_findings",
		help: "Number of problems with objects, by the reason of their Events, such as FrontendConflict; the page /findings lists " +
			"them. Of those that syncs find, only the reported ones.",
		labels: []string{reasonLabel}, start: [][]string{findingCodes},
	})
	externalChanges = counter(row{
		name:   "vicinity_nft_external_changes_total",
		help:   "Number of changes to the proxy's nftables tables by other processes: detected, and repaired by a full sync.",
		labels: []string{familyLabel, stageLabel}, start: [][]string{families, {stageDetected, stageRepaired}},
	})
	OtherProxies = gauge(row{
		name:   "vicinity_other_service_proxies",
		help:   "Whether another service proxy has rules on this node that may translate connections first; the log has the fix.",
		labels: []string{proxyLabel}, start: [][]string{otherProxies},
	})
	EventsDropped = counterFunc(row{
		name: "vicinity_events_dropped_total",
		help: "Number of Kubernetes Events that were not sent: the queue was full, or the API server rejected them.",
	})
	NodeConditionUnwritten = gauge(row{
		name: "vicinity_node_condition_stale",
		help: "Whether the Node condition vicinity.dev/ServicesReady is outdated because it cannot be written; the log has the reason.",
	})
	SyncQueueDepth = gauge(row{
		name: "vicinity_sync_queue_depth",
		help: "Number of Services with a queued change: large Services are written in steps, and many changes at once in batches.",
	})
	Services = gauge(row{
		name: "vicinity_services",
		help: "Number of proxied Services.",
	})
	ServicePortsByReason = gaugeFunc(row{
		name:   "vicinity_service_port_decisions",
		help:   "Number of proxied Service ports, by the reason for their endpoints on this node.",
		labels: []string{familyLabel, policyLabel, reasonLabel},
	})
	ServicePortsByDemand = gauge(row{
		name: "vicinity_load_bounded_service_ports",
		help: "Number of Service ports with a load bound, by the source of their demand on this node: measured, the Service's clients, " +
			"or the labels of Nodes.",
		labels: []string{demandLabel}, start: [][]string{{balance.Measurement.String(), balance.Clients.String(), balance.Labels.String()}},
	})
	ExpectedTraffic = gaugeFunc(row{
		name: "vicinity_expected_traffic_ratio",
		help: "Planned share of this node's new connections to endpoints that this topology key is the first to match: the mean over " +
			"load-bounded Service ports.",
		labels: []string{keyLabel},
	})
	KernelSettingsUnmet = gaugeFunc(row{
		name: "vicinity_kernel_settings_unmet",
		help: "Whether a kernel setting differs from what the proxy needs, and the proxy cannot or may not change it; the log and " +
			"'proxy status' have the fix.",
		labels: []string{sysctlLabel},
	})
	EvacuatedNodes = gauge(row{
		name:   "vicinity_evacuated_nodes",
		help:   "Number of nodes that are being evacuated: until a time, or without an end.",
		labels: []string{endLabel}, start: [][]string{{EndTime, EndNone}},
	})
	StaleEntriesDeleted = counter(row{
		name: "vicinity_conntrack_stale_entries_deleted_total",
		help: "Number of deleted conntrack entries of removed endpoints: unreplied ones, and closed ones with a port that a client may " +
			"reuse. The client's next packet reaches another endpoint.",
		labels: []string{protocolLabel, stateLabel}, start: append(slices.Clip(connectionProtocols), []string{FlowUnreplied, FlowClosed}),
	})
	ConntrackDumps = histogram(row{
		name: "vicinity_conntrack_dump_duration_seconds",
		help: "Time taken by conntrack dumps, each shared by all users: complete, or truncated, because there were more entries than one " +
			"dump reads.",
		labels: []string{resultLabel}, start: [][]string{{DumpComplete, DumpTruncated}}, buckets: syncBuckets,
	})
	DNSRequests = counter(row{
		name:   "vicinity_dns_requests_total",
		help:   "Number of queries to --dns-bind-address, by the type of record and by outcome.",
		labels: []string{typeLabel, resultLabel}, start: [][]string{{"A", "AAAA", "SRV"}, {"answered", "empty", "refused"}},
	})
	LocalhostConnections = counter(row{
		name:   "vicinity_localhost_nodeport_connections_total",
		help:   "Number of connections to node ports on loopback, by outcome.",
		labels: []string{familyLabel, resultLabel}, start: [][]string{families, {"forwarded", "unreachable", "limit_exceeded"}},
	})
	DNSServices = gaugeFunc(row{
		name: "vicinity_dns_services",
		help: "Number of headless Services that the proxy's DNS serves.",
	})
	XDSStreams = gaugeFunc(row{
		name: "vicinity_xds_streams",
		help: "Number of streams of clients of --xds-bind-address. A gRPC client has one for each Service that it dials.",
	})
	XDSNames = gaugeFunc(row{
		name: "vicinity_xds_subscribed_resources",
		help: "Number of resources that clients of --xds-bind-address subscribe to: each stream has one of each type for a Service port.",
	})
	XDSResponses = counterFunc(row{
		name: "vicinity_xds_responses_total",
		help: "Number of responses to clients of --xds-bind-address, by the type of resources: all that were sent, and those that a " +
			"client nacked. The client then keeps its last state, and the log has its reason.",
		labels: []string{typeLabel, resultLabel},
	})
	XDSRejected = counterFunc(row{
		name:   "vicinity_xds_rejections_total",
		help:   "Number of connections, streams, requests and names of clients of --xds-bind-address that were rejected, by reason.",
		labels: []string{reasonLabel},
	})
	nodeTopology = gauge(row{
		name:   "vicinity_node_topology_source",
		help:   "Whether a resource is the source of other nodes' labels; 0 for all while no Service needs them.",
		labels: []string{sourceLabel}, start: [][]string{topologyResources},
	})
	demandAge = gauge(row{
		name: "vicinity_demand_last_renewed_timestamp_seconds",
		help: "Time at which measured demand was last renewed, in seconds since 1970; absent while nothing publishes it, or no Service " +
			"is planned with it.",
	})
	watchInterrupted = gauge(row{
		name:   "vicinity_watch_interrupted_timestamp_seconds",
		help:   "Time since which the watch of a resource has been interrupted, in seconds since 1970; absent while it works.",
		labels: []string{resourceLabel},
	})
)

// The metrics of --traffic-accounting. While that is off they have no series, or are zero.
var (
	Connections = counterFunc(row{
		name: "vicinity_connections_total",
		help: "Number of connections that this node sent to an endpoint, by the locality of the endpoint, by the first topology key " +
			"that it matches, and by outcome: replied, refused with a reset, or unreplied. " + lagNote,
		labels: []string{localityLabel, tierLabel, outcomeLabel},
	})
	Traffic = counterFunc(row{
		name:   "vicinity_traffic_bytes_total",
		help:   "Number of bytes of these connections, IP headers included, that clients sent and received. " + lagNote,
		labels: []string{localityLabel, tierLabel, directionLabel},
	})
	ZoneTraffic = counterFunc(row{
		name:   "vicinity_zone_traffic_bytes_total",
		help:   "Number of bytes of these connections by this node's zone and the endpoint's; empty if unknown. " + lagNote,
		labels: zoneLabels,
	})
	ServiceConnections = counterFunc(row{
		name: "vicinity_service_connections_total",
		help: "Number of connections as in vicinity_connections_total, by Service, with --traffic-accounting=services; Services " +
			"beyond its number count without a name. " + lagNote,
		labels: append(slices.Clone(serviceLabels), outcomeLabel),
	})
	ServiceTraffic = counterFunc(row{
		name:   "vicinity_service_traffic_bytes_total",
		help:   "Number of bytes as in vicinity_traffic_bytes_total, by Service. " + lagNote,
		labels: append(slices.Clone(serviceLabels), directionLabel),
	})
	NotCounted = counterFunc(row{
		name: "vicinity_accounting_not_counted_total",
		help: "Number of connections that were not counted, or only in part. lost_end: they ended faster than the proxy could read; of all " +
			"connections of this node, to Services or not. other_program: another program translated them, such as a port mapping. " +
			"counters_reset: another program reset conntrack's counters, and bytes are missing. no_counters: conntrack counted no " +
			"bytes when they began.",
		labels: []string{reasonLabel},
	})
)

// lagNote explains why the metrics of --traffic-accounting lag.
const lagNote = "They count when their conntrack entry ends, up to two minutes after the last packet; long ones each minute."

// programmingBuckets are kube-proxy's, which the scale tests of Kubernetes read: 0.25 s and 0.5 s, then steps of 1 s up
// to a minute, of 5 s up to two minutes, and of 30 s up to five minutes.
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
