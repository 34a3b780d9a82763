package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"slices"

	"github.com/spf13/pflag"

	"github.com/vicinity-proxy/vicinity/pkg/cli"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/config"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/daemon"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/apiserver"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// runFlags are the flags of the daemon.
type runFlags struct {
	tableFlags
	logLevel      string
	ownTables     string
	secureMetrics string
	nodeCondition bool
	// unreachableNodes is the mode for nodes that do not reply.
	unreachableNodes string

	dns      dnsFlags
	xds      xdsFlags
	account  accountFlags
	ignored  compatFlags
	replaced replacedFlags

	// initOnly, check and writeConfigTo run a single step instead of the daemon.
	initOnly      bool
	check         bool
	writeConfigTo string

	// level is the lowest level that is logged, after Validate.
	level slog.Level
}

// serverSettings are settings that only the daemon uses.
var serverSettings = []settingFlag{
	{"healthz-bind-address", "healthzBindAddress", "`IP:PORT` that serves /healthz, /livez and /readyz"},
	{"metrics-bind-address", "metricsBindAddress", "`IP:PORT` that serves /metrics"},
	{"bind-address-hard-fail", "bindAddressHardFail", "exit if another process uses one of these addresses, instead of retrying"},
	{"profiling", "enableProfiling", "serve /debug/pprof next to /metrics"},
	{
		"sync-period", "nftables.syncPeriod",
		"maximum `TIME` between two attempts after a failure; a change that is pending for twice as long makes the proxy unhealthy",
	},
	{"log-format", "logging.format", "`FORMAT` of the log: text or json"},
	{"v", "logging.verbosity", "verbosity `NUMBER`, as in kube-proxy: 4 or more means --log-level debug, unless that is given"},
	{
		"oom-score-adj", "oomScoreAdj",
		"`NUMBER` from -1000 to 1000: the proxy's oom_score_adj; the higher, the sooner the kernel kills it when memory is short " +
			"(default: inherited)",
	},
}

// conntrackSettings are kernel settings, which are written only if the process may write them.
var conntrackSettings = []settingFlag{
	{
		"conntrack-max-per-core", "conntrack.maxPerCore",
		"`NUMBER` of connections per core that the kernel can track at least, up to 1048576 in total. 0 keeps the kernel's limit; a larger " +
			"one is never lowered",
	},
	{"conntrack-min", "conntrack.min", "`NUMBER` of connections that the kernel can track at least, however few cores there are"},
	{
		"conntrack-tcp-timeout-established", "conntrack.tcpEstablishedTimeout",
		"`TIME` after which conntrack removes an idle TCP connection; 0 keeps the kernel's value",
	},
	{
		"conntrack-tcp-timeout-close-wait", "conntrack.tcpCloseWaitTimeout",
		"`TIME` after which conntrack removes a TCP connection that one side has closed; 0 keeps the kernel's value",
	},
	{"conntrack-tcp-be-liberal", "conntrack.tcpBeLiberal", "track TCP packets outside of the window as part of their connection"},
	{
		"conntrack-udp-timeout", "conntrack.udpTimeout",
		"`TIME` after which conntrack removes an unreplied UDP flow; 0, the default, keeps the kernel's value",
	},
	{
		"conntrack-udp-timeout-stream", "conntrack.udpStreamTimeout",
		"`TIME` after which conntrack removes an idle UDP flow; 0, the default, keeps the kernel's value",
	},
}

// daemonSettings returns all settings with a flag that have an effect here.
func daemonSettings() []settingFlag {
	return slices.Concat(connectionSettings, gateSettings, clientSettings, nodePortSettings, serverSettings, conntrackSettings)
}

func (f *runFlags) register(flags *pflag.FlagSet) {
	f.stateFlags.register(flags, "With --check, - is standard input. ", clientSettings, nodePortSettings, serverSettings, conntrackSettings)
	flags.StringVar(&f.logLevel, "log-level", "", "lowest `LEVEL` that is logged: debug, info, warn or error (default: info, or that of -v)")
	flags.StringVar(&f.ownTables, "own-tables", "auto",
		"`WHEN` to own the tables, so that no other program can change them: auto, if the kernel keeps them after an exit (6.9+), or never")
	flags.StringVar(&f.secureMetrics, "secure-metrics-bind-address", "",
		"`IP:PORT` that serves /metrics and /demand over TLS to tokens that the API server allows to get them (default: no server)")
	flags.BoolVar(&f.nodeCondition, "node-condition", false,
		"report on the Node whether its Services work, as the condition vicinity.dev/ServicesReady; needs permission to patch nodes/status, "+
			"and the policy that limits it: manifests/node-condition")
	flags.StringVar(&f.unreachableNodes, "unreachable-node-mode", string(daemon.DemoteUnreachable),
		"`MODE` of treating nodes that do not reply to this one while others do: enforce, new connections avoid their endpoints as long as "+
			"others may serve; observe, they are logged and counted; off, no node is probed")
	f.dns.register(flags)
	f.xds.register(flags)
	f.account.register(flags)
	f.topology.register(flags)
	flags.BoolVar(&f.initOnly, "init-only", false,
		"write the kernel settings of the --conntrack-... flags, and exit: for an init container with more privileges than the proxy's")
	flags.BoolVar(&f.check, "check", false,
		"print what would change for kube-proxy's file of --config on this node, change nothing, and exit: with status 2 if the proxy "+
			"would not start")
	flags.StringVar(&f.writeConfigTo, "write-config-to", "", "write the configuration that results from file and flags to `FILE`, and exit")
	f.ignored.register(flags, &f.settingFlags)
	f.replaced.register(flags)
}

// Validate checks all flags, parses those that are not plain values, and reports all errors at once. It requires read.
func (f *runFlags) Validate() error {
	err := errors.Join(
		f.replaced.Validate(),
		f.ignored.Validate(),
		f.validateState(),
		f.parseLevel(),
		f.validateVicinity(),
	)
	f.messages = append(slices.Clone(f.messages), f.ignored.messages()...)
	return err
}

// validateVicinity checks the settings for which kube-proxy has no flag.
func (f *runFlags) validateVicinity() error {
	return errors.Join(
		cli.Choice("own-tables", f.ownTables, "auto", "never"),
		f.validateSecureMetrics(),
		f.validateNodeCondition(),
		cli.Choice("unreachable-node-mode", f.unreachableNodes,
			string(daemon.DemoteUnreachable), string(daemon.ReportUnreachable), string(daemon.IgnoreUnreachable)),
		f.dns.Validate(),
		f.xds.Validate(f.settings.MetricsBindAddress, f.settings.HealthzBindAddress, f.secureMetrics, f.dns.bindAddress),
		f.account.Validate(),
		f.topology.Validate(),
	)
}

// validateState checks the source of the state, if one is needed.
func (f *runFlags) validateState() error {
	if f.initOnly || f.check || f.writeConfigTo != "" {
		return f.validateStateless()
	}
	return f.tableFlags.Validate()
}

// validateSecureMetrics requires another address than those of /metrics and /healthz, and an API server for authorization.
func (f *runFlags) validateSecureMetrics() error {
	if f.secureMetrics == "" {
		return nil
	}
	address, err := netip.ParseAddrPort(f.secureMetrics)
	switch {
	case err != nil:
		return fmt.Errorf("--secure-metrics-bind-address %q is not IP:PORT, such as 0.0.0.0:10449", f.secureMetrics)
	case f.manifests != "":
		return errors.New("--secure-metrics-bind-address needs an API server for authorization: --manifests has none")
	case address.Port() != 0 &&
		(f.secureMetrics == f.settings.MetricsBindAddress || f.secureMetrics == f.settings.HealthzBindAddress):
		return fmt.Errorf("--secure-metrics-bind-address %s is the address of another server: each needs its own", f.secureMetrics)
	}
	return nil
}

// validateNodeCondition requires an API server, which has the Node.
func (f *runFlags) validateNodeCondition() error {
	if f.nodeCondition && f.manifests != "" {
		return errors.New("--node-condition needs an API server, to update the Node: --manifests has none")
	}
	return nil
}

func (f *runFlags) parseLevel() error {
	if f.logLevel == "" {
		f.level = f.settings.LogLevel
		return nil
	}
	err := cli.Choice("log-level", f.logLevel, "debug", "info", "warn", "error")
	if err != nil {
		return err
	}
	return f.level.UnmarshalText([]byte(f.logLevel))
}

func (f *runFlags) logger(stderr io.Writer) *slog.Logger {
	return cli.NewLogger(stderr, f.settings.LogFormat, f.level)
}

// view returns the daemon's view: it includes headless Services if DNS is served.
func (f *runFlags) view() convert.View {
	view := f.stateFlags.view()
	view.WithHeadless, view.WithPodNames = f.dns.address.IsValid(), f.dns.podNames
	return view
}

// options returns the daemon's options, after Validate.
func (f *runFlags) options() *daemon.Options {
	return &daemon.Options{
		Node:            f.node,
		Manifests:       f.manifests,
		Connection:      f.connection(),
		View:            f.view(),
		Settings:        f.settings,
		ConfigFile:      f.file,
		IgnoredSettings: f.messages,
		Configuration:   f.configuration,
		Flags:           valuesOf(f.flagSet),
		ConfigzData:     config.Configz(f.configuration, vicinitySettings(), f.vicinityValues(false)),
		OwnTables:       f.ownTables == "auto",
		NodeCondition:   f.nodeCondition,
		Account:         f.account.settings,

		UnreachableNodes: daemon.UnreachableNodes(f.unreachableNodes),

		SecureMetricsAddress: f.secureMetrics,
		DNSAddress:           f.dns.address,
		DNSZone:              f.dns.zone,
		XDSAddresses:         f.xds.addresses,
		NodeTopology:         apiserver.NodeTopology(f.topology.source),
		TopologyNamespace:    f.topology.namespace,
		ProxyService:         f.topology.proxyService(),
		Build:                thisBuild(),
	}
}

// valuesOf returns the values of all flags that --help lists.
func valuesOf(flags *pflag.FlagSet) map[string]string {
	values := map[string]string{}
	flags.VisitAll(func(flag *pflag.Flag) {
		if !flag.Hidden {
			values[flag.Name] = flag.Value.String()
		}
	})
	return values
}
