package config

import "slices"

// Meaningless is a setting of kube-proxy that has no effect here.
type Meaningless struct {
	// Field is its path in the file; empty if there is only a flag.
	Field string
	// Flag is its name on the command line, without dashes; empty if it can only be set in files.
	Flag string
	// Default is kube-proxy's own default: writing it out changes nothing.
	Default string
	// Why is the reason in a few words.
	Why string
	// Refused is a number that would forbid something, so that it is an error; empty if there is none. WhyRefused says
	// what to write instead.
	Refused, WhyRefused string
}

const (
	noMark      = "no mark is used"
	noPause     = "changes wait for each other 40 ms at most, and a sync costs what it changes"
	noIPVS      = "IPVS is not used"
	noWindows   = "this is not Windows"
	noBuffer    = "each line of the log is written at once, to standard error"
	noCadvisor  = "nothing here reads it"
	otherModes  = "only the section of the file's mode counts"
	noLocalhost = "loopback serves node ports with the feature gate " + localhostNodePorts + " alone"
)

// meaningless lists every field of the file that has no effect, and every flag. settings.go reads all others.
//
// None of them forbids or limits anything, unless what it forbids is never done here.
//
// Three have a meaning after all, in some file: the section of the file's mode says whether everything is masqueraded and
// how long to wait (see takeModesSection).
var meaningless = []Meaningless{
	{Field: "configSyncPeriod", Flag: "config-sync-period", Default: "15m0s", Why: "nothing is read again without a change"},
	{Field: "iptables.localhostNodePorts", Flag: "iptables-localhost-nodeports", Default: "true", Why: noLocalhost},
	{Field: "iptables.masqueradeAll", Why: otherModes},
	{Field: "iptables.masqueradeBit", Flag: "iptables-masquerade-bit", Default: "14", Why: noMark},
	{Field: "iptables.minSyncPeriod", Flag: "iptables-min-sync-period", Default: "1s", Why: noPause},
	{Field: "iptables.syncPeriod", Default: "30s", Why: otherModes},
	{Field: "ipvs.excludeCIDRs", Flag: "ipvs-exclude-cidrs", Why: noIPVS},
	{Field: "ipvs.minSyncPeriod", Flag: "ipvs-min-sync-period", Default: "1s", Why: noPause},
	{Field: "ipvs.scheduler", Flag: "ipvs-scheduler", Why: "each connection goes to an endpoint drawn at random"},
	{Field: "ipvs.strictARP", Flag: "ipvs-strict-arp", Why: noIPVS},
	{Field: "ipvs.syncPeriod", Flag: "ipvs-sync-period", Default: "30s", Why: otherModes},
	{Field: "ipvs.tcpFinTimeout", Flag: "ipvs-tcpfin-timeout", Why: noIPVS},
	{Field: "ipvs.tcpTimeout", Flag: "ipvs-tcp-timeout", Why: noIPVS},
	{Field: "ipvs.udpTimeout", Flag: "ipvs-udp-timeout", Why: noIPVS},
	{Field: "logging.flushFrequency", Flag: "log-flush-frequency", Default: "5s", Why: noBuffer},
	{Field: "logging.options.json.infoBufferSize", Flag: "log-json-info-buffer-size", Why: noBuffer},
	{Field: "logging.options.json.splitStream", Flag: "log-json-split-stream", Why: noBuffer},
	{Field: "logging.options.text.infoBufferSize", Flag: "log-text-info-buffer-size", Why: noBuffer},
	{Field: "logging.options.text.splitStream", Flag: "log-text-split-stream", Why: noBuffer},
	{Field: "logging.vmodule", Flag: "vmodule", Why: "the log has one level for everything"},
	{Field: "mode", Flag: "proxy-mode", Default: modeNFTables, Why: "nftables is what is programmed, whatever the mode"},
	{Field: "nftables.masqueradeBit", Default: "14", Why: noMark},
	{Field: "nftables.minSyncPeriod", Default: "1s", Why: noPause},
	{Field: "portRange", Flag: "proxy-port-range", Why: "no port is opened for a Service"},
	{
		Field: "showHiddenMetricsForVersion", Flag: "show-hidden-metrics-for-version", Why: "no metric is hidden",
	},
	{Field: "windowsRunAsService", Why: noWindows},
	{Field: "winkernel.enableDSR", Why: noWindows},
	{Field: "winkernel.forwardHealthCheckVip", Why: noWindows},
	{Field: "winkernel.networkName", Why: noWindows},
	{Field: "winkernel.rootHnsEndpointName", Why: noWindows},
	{Field: "winkernel.sourceVip", Why: noWindows},
	{Flag: "boot-id-file", Why: noCadvisor},
	{Flag: "machine-id-file", Why: noCadvisor},
	{
		Flag: "healthz-port", Why: "--healthz-bind-address has the port",
		Refused: "0", WhyRefused: "this server cannot be closed; --healthz-bind-address 127.0.0.1 keeps it on this node",
	},
	{
		Flag: "metrics-port", Why: "--metrics-bind-address has the port",
		Refused: "0", WhyRefused: "this server cannot be closed; --metrics-bind-address 127.0.0.1 keeps it on this node",
	},
}

// former are the fields that kube-proxy's file had once (kubernetes/kubernetes#78296, #78287, and userspace mode's).
// Files outlive upgrades, and kube-proxy reads those that it does not know with a line in its log.
var former = map[string]string{
	"conntrack.max":     "kube-proxy has it no more; conntrack.maxPerCore and conntrack.min are used",
	"resourceContainer": "kube-proxy has it no more",
	"udpIdleTimeout":    "kube-proxy has it no more; it was for mode userspace",
}

// WithoutMeaning returns every setting of kube-proxy that has no effect here.
func WithoutMeaning() []Meaningless { return slices.Clone(meaningless) }

// notes lists which fields of a file are set and have no effect, a line each.
func notes(c *Configuration) []string {
	var lines []string
	for _, setting := range meaningless {
		if !setting.IsChosen(c) || countsInMode(setting.Field, c.Mode) {
			continue
		}
		lines = append(lines, setting.Field+": "+setting.Why)
	}
	return append(lines, GateNotes(c)...)
}

// IsChosen reports whether the field is set, and to something else than kube-proxy's default. It is false for a
// setting without a field.
func (m Meaningless) IsChosen(c *Configuration) bool {
	if m.Field == "" {
		return false
	}
	switch text := Get(c, m.Field); text {
	case "", m.Default:
		return false
	case "0", "0s", "false":
		return isPointer(m.Field) // in the others zero is the same as not being set
	}
	return true
}
