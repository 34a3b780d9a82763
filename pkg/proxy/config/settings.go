package config

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/sysctl"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// Settings are what a configuration says, as far as it has meaning here.
type Settings struct {
	// Node is the name of the Node to act for; empty for the host's name.
	Node string
	// Connection is how the API server is reached.
	Connection Connection
	// HealthzBindAddress and MetricsBindAddress are the addresses of the two servers, IP:PORT.
	HealthzBindAddress, MetricsBindAddress string
	// BindAddressHardFail: an address of a server that cannot be bound ends the proxy. Otherwise it is tried again.
	BindAddressHardFail bool
	// Profiling: the server of metrics also serves /debug/pprof; Flagz and Statusz: /flagz and /statusz.
	Profiling, Flagz, Statusz bool
	// ExternalIPs: addresses in spec.externalIPs are served.
	ExternalIPs bool
	// LocalTraffic distinguishes this node's pods from other clients.
	LocalTraffic ruleset.LocalTraffic
	// MasqueradeAll masquerades every connection to a ClusterIP, also those of pods.
	MasqueradeAll bool
	// NodePorts says on which addresses node ports are served.
	NodePorts model.NodePortAddresses
	// NodeAddress is an address of the node that counts instead of the one of its family that the Node object names.
	// The zero value: those of the object count.
	NodeAddress netip.Addr
	// SyncPeriod is the longest pause between two tries after a failure. A change that waits for twice as long makes the
	// proxy unhealthy.
	SyncPeriod time.Duration
	// Conntrack is what is asked of the kernel's connection tracking.
	Conntrack sysctl.Conntrack
	// OOMScoreAdj is this process's oom_score_adj, from -1000 to 1000; nil to leave what its parent process has set.
	OOMScoreAdj *int32
	// LogFormat is text or json.
	LogFormat string
	// LogLevel is the least level that is logged.
	LogLevel slog.Level
}

// Tables is how to make the tables of some families.
func (s *Settings) Tables(families []model.Family) ruleset.Config {
	return ruleset.Config{
		Families:      families,
		LocalTraffic:  s.LocalTraffic,
		MasqueradeAll: s.MasqueradeAll,
		NodePorts:     s.NodePorts,
	}
}

// Connection is how the API server is reached.
type Connection struct {
	// Kubeconfig is the path of a kubeconfig file; empty for the service account of the pod.
	Kubeconfig string
	// AcceptContentTypes and ContentType are the formats that are asked for and sent.
	AcceptContentTypes, ContentType string
	// QPS and Burst limit the requests per second, in the long run and at once.
	QPS   float32
	Burst int
}

// FieldError is a field with a value that makes no sense.
type FieldError struct {
	// Field is its path in the file.
	Field string
	// Reason is what is wrong, a sentence without subject.
	Reason string
}

// debugVerbosity is the klog verbosity from which on components of Kubernetes log what happens all the time ("debug
// level verbosity", in the logging conventions of Kubernetes).
const debugVerbosity = 4

// Resolve fills in the defaults of what a configuration leaves open, and returns what it says, and every field error
// in it. The mode becomes nftables, whatever it was: the configuration is then the one in force.
func Resolve(c *Configuration) (Settings, []FieldError) {
	setDefaults(c)
	var check checker
	settings := Settings{
		Node:                c.HostnameOverride,
		Connection:          check.connection(c),
		HealthzBindAddress:  check.listenAddress("healthzBindAddress", c.HealthzBindAddress),
		MetricsBindAddress:  check.listenAddress("metricsBindAddress", c.MetricsBindAddress),
		BindAddressHardFail: c.BindAddressHardFail,

		Profiling:     c.EnableProfiling,
		Flagz:         isOn(c.FeatureGates, componentFlagz),
		Statusz:       isOn(c.FeatureGates, componentStatusz),
		ExternalIPs:   isOn(c.FeatureGates, allowServiceExternalIPs),
		LocalTraffic:  check.localTraffic(c),
		MasqueradeAll: c.NFTables.MasqueradeAll,
		NodePorts:     check.nodePorts(c.NodePortAddresses),
		NodeAddress:   check.nodeAddress(c.BindAddress),
		SyncPeriod:    check.positive("nftables.syncPeriod", c.NFTables.SyncPeriod.Duration),
		Conntrack:     check.conntrack(&c.Conntrack),
		OOMScoreAdj:   check.oomScoreAdj(c.OOMScoreAdj),
		LogFormat:     check.oneOf("logging.format", c.Logging.Format, "text", "json"),
	}
	if c.Logging.Verbosity >= debugVerbosity {
		settings.LogLevel = slog.LevelDebug
	}
	settings.NodePorts.Localhost = isOn(c.FeatureGates, localhostNodePorts)
	check.different(c)
	check.gates(c.FeatureGates)
	check.oneOf("mode", string(c.Mode), modes...)
	c.Mode = modeNFTables
	return settings, check.fieldErrors
}
