package metrics

import "github.com/prometheus/client_golang/prometheus"

// The metrics that mean the same as kube-proxy's of the same name.
const (
	SyncDurationName = "kubeproxy_sync_proxy_rules_duration_seconds"
	syncDurationHelp = "How long each attempt to bring the kernel up to date took, failed ones included."

	FullSyncDurationName = "kubeproxy_sync_full_proxy_rules_duration_seconds"
	fullSyncDurationHelp = "How long each attempt to write everything took, failed ones included."

	PartialSyncDurationName = "kubeproxy_sync_partial_proxy_rules_duration_seconds"
	partialSyncDurationHelp = "How long each attempt to write what changed took, failed ones included."

	LastSyncName = "kubeproxy_sync_proxy_rules_last_timestamp_seconds"
	lastSyncHelp = "When the kernel was last brought up to date, in seconds since 1970."

	LastQueuedName = "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds"
	lastQueuedHelp = "When a change last asked for a sync, in seconds since 1970."

	ProgrammingDurationName = "kubeproxy_network_programming_duration_seconds"
	programmingDurationHelp = "How long it took from the cause of an EndpointSlice's change, such as a pod that became ready, until the " +
		"kernel had the change."

	EndpointChangesPendingName = "kubeproxy_sync_proxy_rules_endpoint_changes_pending"
	endpointChangesPendingHelp = "Changes of EndpointSlices that were taken up and that the kernel does not have yet."

	EndpointChangesName = "kubeproxy_sync_proxy_rules_endpoint_changes_total"
	endpointChangesHelp = "Changes of EndpointSlices that were taken up."

	ServiceChangesPendingName = "kubeproxy_sync_proxy_rules_service_changes_pending"
	serviceChangesPendingHelp = "Changes of Services that were taken up and that the kernel does not have yet."

	ServiceChangesName = "kubeproxy_sync_proxy_rules_service_changes_total"
	serviceChangesHelp = "Changes of Services that were taken up, each once, whatever its families are."

	NoLocalEndpointsName = "kubeproxy_sync_proxy_rules_no_local_endpoints_total"
	noLocalEndpointsHelp = "Service ports whose traffic a Local policy keeps on this node, where no endpoint can take it, while others could."

	SyncFailuresName = "kubeproxy_sync_proxy_rules_nftables_sync_failures_total"
	syncFailuresHelp = "Syncs that the kernel did not take."

	CleanupFailuresName = "kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total"
	cleanupFailuresHelp = "Sweeps of what nobody uses any more that the kernel did not take; the next sync tries again."

	FlowsDurationName = "kubeproxy_conntrack_reconciler_sync_duration_seconds"
	flowsDurationHelp = "How long it took to look at the UDP flows of some frontends and to end those that have to, if it succeeded."

	FlowsEndedName = "kubeproxy_conntrack_reconciler_deleted_entries_total"
	flowsEndedHelp = "UDP flows that were ended because the endpoint they went to may not answer them any more."

	HealthzName = "kubeproxy_proxy_healthz_total"
	healthzHelp = "Answers that /healthz gave, by HTTP status."

	LivezName = "kubeproxy_proxy_livez_total"
	livezHelp = "Answers that /livez gave, by HTTP status."
)

// The metrics of every program that asks an API server with client-go.
const (
	APIRequestsName = "rest_client_requests_total"
	apiRequestsHelp = "Requests to the API server, by HTTP status, method and host."

	APIRequestDurationName = "rest_client_request_duration_seconds"
	apiRequestDurationHelp = "How long requests to the API server took, by verb and host."
)

// The metrics that only Vicinity has.
const (
	BuildInfoName = "vicinity_build_info"
	buildInfoHelp = "Always 1; the labels say what runs."

	SyncServicesName = "vicinity_sync_services"
	syncServicesHelp = "How many Services were decided in each sync that the kernel took: those that a change concerned, or all of them."

	ElementsWrittenName = "vicinity_nft_elements_written_total"
	elementsWrittenHelp = "Elements of nftables sets and maps that were added to or deleted from the kernel."

	ObjectsRefusedName = "vicinity_objects_refused"
	objectsRefusedHelp = "Objects that are left out at present because something in them cannot be true; the log names them."

	ForeignChangesName = "vicinity_foreign_changes_total"
	foreignChangesHelp = "Changes to our nftables tables that another process made, counted when they were noticed."

	ForeignChangesRepairedName = "vicinity_foreign_changes_repaired_total"
	foreignChangesRepairedHelp = "Changes to our nftables tables that another process made, counted when everything had been written again."

	FrontendsContestedName = "vicinity_frontends_contested"
	frontendsContestedHelp = "Frontends that several Services want at present: one has it, 'explain' on each of the others names it."

	EventsDroppedName = "vicinity_events_dropped_total"
	eventsDroppedHelp = "Kubernetes Events that were not told: too many were waiting, or the API server did not want them."

	HealthChecksFailedName = "vicinity_health_check_listeners_failed"
	healthChecksFailedHelp = "1 while some healthCheckNodePort cannot be served; the log says which and why."

	ServicesName = "vicinity_services"
	servicesHelp = "Services that are proxied at present."

	ServicePortsName = "vicinity_service_ports"
	servicePortsHelp = "Service ports that are proxied at present."

	ServicePortsByReasonName = "vicinity_service_ports_by_reason"
	servicePortsByReasonHelp = "Service ports that are proxied at present, by why they have the endpoints that they have on this node."

	WatchInterruptedName = "vicinity_watch_interrupted_timestamp_seconds"
	watchInterruptedHelp = "Since when the API server has not been heard about a resource, in seconds since 1970; absent while it is heard."
)

// The labels.
const (
	FamilyLabel    = "ip_family"      // IPv4 or IPv6
	ResourceLabel  = "resource"       // a Kubernetes resource, such as endpointslices; nodes/NAME is this node
	OperationLabel = "operation"      // OperationAdd or OperationDelete
	KindLabel      = "kind"           // a Kubernetes kind, such as EndpointSlice
	PolicyLabel    = "traffic_policy" // PolicyInternal or PolicyExternal
	ReasonLabel    = "reason"         // one of the codes that explain gives
	CodeLabel      = "code"           // an HTTP status; "<error>" if there was no answer
	MethodLabel    = "method"
	VerbLabel      = "verb"
	HostLabel      = "host"
	VersionLabel   = "version"
	GoVersionLabel = "goversion"
)

// The values of OperationLabel.
const (
	OperationAdd    = "add"
	OperationDelete = "delete"
)

// The values of PolicyLabel: internalTrafficPolicy governs the ClusterIP, externalTrafficPolicy every other frontend.
const (
	PolicyInternal = "internal"
	PolicyExternal = "external"
)

// Families are the values of FamilyLabel. Every count that has the label exists for both from the start, so that a rate over
// its first increment is right.
var Families = []string{"IPv4", "IPv6"}

// syncDurationBuckets are kube-proxy's: 1 ms, doubled up to 16.384 s.
var syncDurationBuckets = prometheus.ExponentialBuckets(0.001, 2, 15)

// programmingDurationBuckets are kube-proxy's, which the scale tests of Kubernetes read: half a second around the first second, each
// second of the first minute, five seconds up to two minutes, half a minute up to five.
func programmingDurationBuckets() []float64 {
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

// apiRequestBuckets are those of every Kubernetes component.
var apiRequestBuckets = []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60}

// syncServicesBuckets: 1 Service, four times as many up to 65,536.
var syncServicesBuckets = prometheus.ExponentialBuckets(1, 4, 9)
