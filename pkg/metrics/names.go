package metrics

import "github.com/prometheus/client_golang/prometheus"

// The metrics that mean the same as kube-proxy's of the same name.
const (
	SyncDurationName = "kubeproxy_sync_proxy_rules_duration_seconds"
	syncDurationHelp = "How long each attempt to bring the kernel up to date took, failed ones included."

	LastSyncName = "kubeproxy_sync_proxy_rules_last_timestamp_seconds"
	lastSyncHelp = "When the kernel was last brought up to date, in seconds since 1970."

	LastQueuedName = "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds"
	lastQueuedHelp = "When a change last asked for a sync, in seconds since 1970."

	SyncFailuresName = "kubeproxy_sync_proxy_rules_nftables_sync_failures_total"
	syncFailuresHelp = "Syncs that the kernel did not take."

	FlowsEndedName = "kubeproxy_conntrack_reconciler_deleted_entries_total"
	flowsEndedHelp = "UDP flows that were ended because the endpoint they went to may not answer them any more."
)

// The metrics that only Vicinity has.
const (
	ElementsWrittenName = "vicinity_nft_elements_written_total"
	elementsWrittenHelp = "Elements of nftables sets and maps that were added to or deleted from the kernel."

	ObjectsRefusedName = "vicinity_objects_refused"
	objectsRefusedHelp = "Objects that are left out at present because something in them cannot be true; the log names them."

	ForeignChangesName = "vicinity_foreign_changes_total"
	foreignChangesHelp = "Changes to our nftables tables that another process made, and that were repaired."

	FrontendsContestedName = "vicinity_frontends_contested"
	frontendsContestedHelp = "Frontends that several Services want at present: one has it, 'explain' on each of the others names it."

	HealthChecksFailedName = "vicinity_health_check_listeners_failed"
	healthChecksFailedHelp = "1 while some healthCheckNodePort cannot be served; the log says which and why."

	ServicePortsName = "vicinity_service_ports"
	servicePortsHelp = "Service ports that are proxied at present."
)

// The labels.
const (
	FamilyLabel    = "ip_family" // IPv4 or IPv6
	OperationLabel = "operation" // OperationAdd or OperationDelete
	KindLabel      = "kind"      // a Kubernetes kind, such as EndpointSlice
)

// The values of OperationLabel.
const (
	OperationAdd    = "add"
	OperationDelete = "delete"
)

// Families are the values of FamilyLabel. Every count that has the label exists for both from the start, so that a rate over
// its first increment is right.
var Families = []string{"IPv4", "IPv6"}

// syncDurationBuckets are kube-proxy's: 1 ms, doubled up to 16.384 s.
var syncDurationBuckets = prometheus.ExponentialBuckets(0.001, 2, 15)
