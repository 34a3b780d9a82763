package config

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/sysctl"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// Settings are the settings of a configuration that have a meaning here.
type Settings struct {
	// Node is the name of the Node to act for; empty means the host name.
	Node string
	// Connection is how the API server is reached.
	Connection Connection
	// HealthzBindAddress and MetricsBindAddress are the addresses of the two servers, IP:PORT.
	HealthzBindAddress, MetricsBindAddress string
	// BindAddressHardFail reports whether the proxy ends if it cannot bind an address of a server. Otherwise it retries.
	BindAddressHardFail bool
	// Profiling reports whether the metrics server also serves /debug/pprof; Flagz and Statusz report the same of /flagz
	// and /statusz.
	Profiling, Flagz, Statusz bool
	// ExternalIPs reports whether addresses in spec.externalIPs are served.
	ExternalIPs bool
	// LocalTraffic distinguishes this node's pods from other clients.
	LocalTraffic ruleset.LocalTraffic
	// MasqueradeAll masquerades every connection to a ClusterIP, also those of pods.
	MasqueradeAll bool
	// NodePorts are the addresses on which node ports are served.
	NodePorts model.NodePortAddresses
	// NodeAddress replaces the Node object's address of its family. The zero value replaces none.
	NodeAddress netip.Addr
	// SyncPeriod is the longest pause between two attempts after a failure. A change that waits for twice as long makes
	// the proxy unhealthy.
	SyncPeriod time.Duration
	// Conntrack are the desired settings of connection tracking.
	Conntrack sysctl.Conntrack
	// OOMScoreAdj is this process's oom_score_adj, from -1000 to 1000; nil leaves the value of the parent process.
	OOMScoreAdj *int32
	// LogFormat is text or json.
	LogFormat string
	// LogLevel is the lowest level that is logged.
	LogLevel slog.Level
}

// Tables returns the configuration of the tables of some families.
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
	// Kubeconfig is the path of a kubeconfig file; empty means the service account of the pod.
	Kubeconfig string
	// AcceptContentTypes and ContentType are the formats of responses and requests.
	AcceptContentTypes, ContentType string
	// QPS and Burst limit the requests: the sustained rate per second, and the number at once.
	QPS   float32
	Burst int
}

// FieldError is a field with an invalid value.
type FieldError struct {
	// Field is its path in the file.
	Field string
	// Reason describes the problem, as a sentence without subject.
	Reason string
}

// debugVerbosity is the klog verbosity from which on components of Kubernetes log routine operations ("debug level
// verbosity", in the logging conventions of Kubernetes).
const debugVerbosity = 4

// Resolve sets the defaults of a configuration, and returns its settings and every field error in it. The mode becomes
// nftables, whatever it was: c is then the active configuration.
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
	check.checkDistinctAddresses(c)
	check.gates(c.FeatureGates)
	check.oneOf("mode", string(c.Mode), modes...)
	c.Mode = modeNFTables
	return settings, check.fieldErrors
}
