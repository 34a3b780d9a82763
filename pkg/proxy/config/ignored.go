package config

import "slices"

// IgnoredSetting is a setting of kube-proxy that has no effect here.
type IgnoredSetting struct {
	// Field is its path in the file; empty if there is only a flag.
	Field string
	// Flag is its name on the command line, without dashes; empty if it can only be set in files.
	Flag string
	// Default is kube-proxy's own default: setting it explicitly changes nothing.
	Default string
	// Reason describes in a few words why it has no effect.
	Reason string
	// Rejected is a value that is an error, because it would disable something; empty if there is none. RejectionReason
	// describes what to write instead.
	Rejected, RejectionReason string
}

const (
	noMark      = "no mark is used"
	noPause     = "changes are batched for at most 40 ms, and a sync writes only what changed"
	noIPVS      = "IPVS is not used"
	noWindows   = "this is not Windows"
	noBuffer    = "each line of the log is written at once, to standard error"
	noCadvisor  = "it is not read"
	otherModes  = "only the section of the file's mode has an effect"
	noLocalhost = "loopback serves node ports only if the feature gate " + localhostNodePorts + " is on"
)

// ignoredSettings lists every field of the file that has no effect, and every flag. settings.go reads all others.
//
// None of them forbids or limits anything, except things that are never done here.
//
// Three do have a meaning in some files: the section of the file's mode determines whether everything is masqueraded
// and the sync period (see applyModeSection).
var ignoredSettings = []IgnoredSetting{
	{Field: "configSyncPeriod", Flag: "config-sync-period", Default: "15m0s", Reason: "there is no periodic resync"},
	{Field: "iptables.localhostNodePorts", Flag: "iptables-localhost-nodeports", Default: "true", Reason: noLocalhost},
	{Field: "iptables.masqueradeAll", Reason: otherModes},
	{Field: "iptables.masqueradeBit", Flag: "iptables-masquerade-bit", Default: "14", Reason: noMark},
	{Field: "iptables.minSyncPeriod", Flag: "iptables-min-sync-period", Default: "1s", Reason: noPause},
	{Field: "iptables.syncPeriod", Default: "30s", Reason: otherModes},
	{Field: "ipvs.excludeCIDRs", Flag: "ipvs-exclude-cidrs", Reason: noIPVS},
	{Field: "ipvs.minSyncPeriod", Flag: "ipvs-min-sync-period", Default: "1s", Reason: noPause},
	{Field: "ipvs.scheduler", Flag: "ipvs-scheduler", Reason: "each connection goes to a random endpoint"},
	{Field: "ipvs.strictARP", Flag: "ipvs-strict-arp", Reason: noIPVS},
	{Field: "ipvs.syncPeriod", Flag: "ipvs-sync-period", Default: "30s", Reason: otherModes},
	{Field: "ipvs.tcpFinTimeout", Flag: "ipvs-tcpfin-timeout", Reason: noIPVS},
	{Field: "ipvs.tcpTimeout", Flag: "ipvs-tcp-timeout", Reason: noIPVS},
	{Field: "ipvs.udpTimeout", Flag: "ipvs-udp-timeout", Reason: noIPVS},
	{Field: "logging.flushFrequency", Flag: "log-flush-frequency", Default: "5s", Reason: noBuffer},
	{Field: "logging.options.json.infoBufferSize", Flag: "log-json-info-buffer-size", Reason: noBuffer},
	{Field: "logging.options.json.splitStream", Flag: "log-json-split-stream", Reason: noBuffer},
	{Field: "logging.options.text.infoBufferSize", Flag: "log-text-info-buffer-size", Reason: noBuffer},
	{Field: "logging.options.text.splitStream", Flag: "log-text-split-stream", Reason: noBuffer},
	{Field: "logging.vmodule", Flag: "vmodule", Reason: "the log has one level for everything"},
	{Field: "mode", Flag: "proxy-mode", Default: modeNFTables, Reason: "nftables is programmed in every mode"},
	{Field: "nftables.masqueradeBit", Default: "14", Reason: noMark},
	{Field: "nftables.minSyncPeriod", Default: "1s", Reason: noPause},
	{Field: "portRange", Flag: "proxy-port-range", Reason: "no port is opened for a Service"},
	{
		Field: "showHiddenMetricsForVersion", Flag: "show-hidden-metrics-for-version", Reason: "no metric is hidden",
	},
	{Field: "windowsRunAsService", Reason: noWindows},
	{Field: "winkernel.enableDSR", Reason: noWindows},
	{Field: "winkernel.forwardHealthCheckVip", Reason: noWindows},
	{Field: "winkernel.networkName", Reason: noWindows},
	{Field: "winkernel.rootHnsEndpointName", Reason: noWindows},
	{Field: "winkernel.sourceVip", Reason: noWindows},
	{Flag: "boot-id-file", Reason: noCadvisor},
	{Flag: "machine-id-file", Reason: noCadvisor},
	{
		Flag: "healthz-port", Reason: "--healthz-bind-address has the port",
		Rejected: "0", RejectionReason: "this server cannot be disabled; --healthz-bind-address 127.0.0.1 keeps it on this node",
	},
	{
		Flag: "metrics-port", Reason: "--metrics-bind-address has the port",
		Rejected: "0", RejectionReason: "this server cannot be disabled; --metrics-bind-address 127.0.0.1 keeps it on this node",
	},
}

// removedFields are fields of earlier versions of kube-proxy's file (kubernetes/kubernetes#78296, #78287, and userspace
// mode's). Files outlive upgrades, and kube-proxy only logs a line about fields that it does not know.
var removedFields = map[string]string{
	"conntrack.max":     "removed from kube-proxy; conntrack.maxPerCore and conntrack.min are used",
	"resourceContainer": "removed from kube-proxy",
	"udpIdleTimeout":    "removed from kube-proxy; it was for mode userspace",
}

// IgnoredSettings returns every setting of kube-proxy that has no effect here.
func IgnoredSettings() []IgnoredSetting { return slices.Clone(ignoredSettings) }

// ignoredMessages returns a line for each field of a file that is set and has no effect.
func ignoredMessages(c *Configuration) []string {
	var lines []string
	for _, setting := range ignoredSettings {
		if !setting.IsNonDefault(c) || appliesInMode(setting.Field, c.Mode) {
			continue
		}
		lines = append(lines, setting.Field+": "+setting.Reason)
	}
	return append(lines, GateMessages(c)...)
}

// IsNonDefault reports whether the field is set to another value than kube-proxy's default. It is false for a setting
// without a field.
func (s IgnoredSetting) IsNonDefault(c *Configuration) bool {
	if s.Field == "" {
		return false
	}
	switch text := Get(c, s.Field); text {
	case "", s.Default:
		return false
	case "0", "0s", "false":
		return isPointer(s.Field) // in others zero is the same as unset
	}
	return true
}
