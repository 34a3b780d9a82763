package main

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// expectError expects an error that contains some text, or none if the text is empty.
func expectError(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("unexpected error: %v", err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("error %v, want one that contains %q", err, want)
	}
}

func TestRunFlags(t *testing.T) {
	const health, metrics = "--healthz-bind-address", "--metrics-bind-address"
	tests := map[string]struct {
		args string
		err  string
	}{
		"the defaults are valid":           {args: ""},
		"all addresses of the machine":     {args: health + " :10256"},
		"an IPv6 address":                  {args: metrics + " [::1]:10249"},
		"any free port, twice":             {args: health + " 127.0.0.1:0 " + metrics + " 127.0.0.1:0"},
		"an address gets the default port": {args: health + " 127.0.0.1"},
		"a host name":                      {args: health + " localhost:80", err: health + `: "localhost" is not an IP address`},
		"a service name for a port":        {args: metrics + " 127.0.0.1:http", err: metrics + `: "http" is not a port number`},
		"a port that is too large":         {args: metrics + " 127.0.0.1:65536", err: metrics + `: "65536" is not a port number`},
		"neither address nor port":         {args: metrics + " metrics", err: metrics + `: "metrics" is not IP:PORT`},
		"one address for two servers":      {args: health + " :1 " + metrics + " :1", err: "each server needs its own"},
		"an unknown log format":            {args: "--log-format xml", err: `--log-format: "xml" must be one of: text, json`},
		"an unknown log level":             {args: "--log-level loud", err: `--log-level "loud" must be one of: debug, info, warn, error`},
		"an unknown ownership of tables":   {args: "--own-tables always", err: `--own-tables "always" must be one of: auto, never`},
		"secure metrics by a host name": {
			args: "--secure-metrics-bind-address localhost:1", err: `--secure-metrics-bind-address "localhost:1" is not IP:PORT`,
		},
		"secure metrics without an API server": {
			args: "--secure-metrics-bind-address 0.0.0.0:10449", err: "--secure-metrics-bind-address needs an API server",
		},
		"a condition without a Node": {
			args: "--node-condition", err: "--node-condition needs an API server",
		},
		"a proxy's name that no label can have": {
			args: "--service-proxy-name a/b", err: `--service-proxy-name: "a/b" cannot be the value of a label: `,
		},
		"DNS on loopback": {args: "--dns-bind-address 127.0.0.1:10053 --dns-ttl 30s --cluster-domain cluster.example."},
		"DNS on all addresses at once": {
			args: "--dns-bind-address 0.0.0.0:53", err: `--dns-bind-address "0.0.0.0:53" is not one address and a port`,
		},
		"DNS at a host name":             {args: "--dns-bind-address localhost:53", err: `--dns-bind-address "localhost:53" is not one address`},
		"xDS at an address and a socket": {args: "--xds-bind-address 0.0.0.0:18000,unix:///run/vicinity/xds.sock"},
		"xDS at a host name":             {args: "--xds-bind-address localhost:1", err: `--xds-bind-address "localhost:1" is neither IP:PORT`},
		"xDS at a relative path": {
			args: "--xds-bind-address unix://xds.sock", err: `--xds-bind-address "unix://xds.sock": a socket's path must begin with a slash`,
		},
		"xDS where the metrics are": {
			args: "--xds-bind-address 127.0.0.1:10249", err: "--xds-bind-address 127.0.0.1:10249 is the address of another server",
		},
		"xDS twice at one address": {
			args: "--xds-bind-address [::1]:1,[::1]:1", err: "--xds-bind-address [::1]:1 is the address of another server",
		},
		"a TTL of half a second":         {args: "--dns-ttl 500ms", err: "--dns-ttl 500ms: must be whole seconds, at most 1h0m0s"},
		"a TTL of a day":                 {args: "--dns-ttl 24h", err: "--dns-ttl 24h0m0s: must be whole seconds"},
		"a domain that no name can have": {args: "--cluster-domain a_b", err: `--cluster-domain "a_b": `},
		"a bound for all Services":       {args: "--default-max-load 150%"},
		"a bound that is a factor":       {args: "--default-max-load 1.5", err: `--default-max-load: "1.5" must be an integer from 100 to 1000`},
		"measured demand by default":     {args: "--default-demand-source measured"},
		"a client Service as the demand source": {
			args: "--default-demand-source ingress/nginx",
			err:  `--default-demand-source "ingress/nginx": the only value is "measured"; a Service names its clients with vicinity.dev/clients`,
		},
		"a negative sync period":         {args: "--sync-period -1s", err: "--sync-period: -1s must be more than 0"},
		"an OOM score out of range":      {args: "--oom-score-adj 1001", err: "--oom-score-adj: 1001 is not between -1000 and 1000"},
		"a negative conntrack limit":     {args: "--conntrack-min -1", err: "--conntrack-min: -1 is less than 0"},
		"an unknown proxy mode":          {args: "--proxy-mode nftable", err: `--proxy-mode: "nftable" must be one of: `},
		"two sources":                    {args: "--kubeconfig x", err: "--manifests and --kubeconfig exclude each other"},
		"two sources, one of them a URL": {args: "--master https://192.0.2.1", err: "--manifests and --master exclude each other"},
		"cleanup is a command":           {args: "--cleanup", err: "--cleanup is a command of its own: 'proxy cleanup'"},
		"no cleanup":                     {args: "--cleanup=false"},
		"the version is a command":       {args: "--version", err: "--version is a command of its own: 'proxy version'"},
		"the version with a value":       {args: "--version=raw", err: "'proxy version'"},
		"no version":                     {args: "--version=false"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := parseRunFlags(t, "--manifests x "+test.args)
			expectError(t, err, test.err)
		})
	}
}

func TestLogLevelAndVerbosity(t *testing.T) {
	for args, want := range map[string]slog.Level{
		"": slog.LevelInfo, "-v 3": slog.LevelInfo, "-v 4": slog.LevelDebug, "--v=5": slog.LevelDebug, "-v4": slog.LevelDebug,
		"-v 4 --log-level warn": slog.LevelWarn, "--log-level debug": slog.LevelDebug, "-v 4 --log-level info": slog.LevelInfo,
		"--log-level error": slog.LevelError,
	} {
		flags, err := parseRunFlags(t, "--manifests x "+args)
		if err != nil || flags.level != want {
			t.Errorf("%q: level %v, error %v; want %v", args, flags.level, err, want)
		}
	}
}

func TestAllMistakesInRunFlagsAreReported(t *testing.T) {
	t.Setenv(serviceHostEnv, "")
	_, err := parseRunFlags(t, "--log-format xml --log-level loud --own-tables always --healthz-bind-address x --oom-score-adj 1001 "+
		"--detect-local-mode BridgeInterface --nodeport-addresses z")
	for _, flag := range []string{
		"--manifests", "--log-format", "--log-level", "--own-tables", "--healthz-bind-address", "--oom-score-adj", "--pod-bridge-interface",
		"--nodeport-addresses",
	} {
		expectError(t, err, flag)
	}
}

func TestDefaultsReachTheView(t *testing.T) {
	for args, want := range map[string]convert.View{
		"": {}, "--default-max-load= --default-demand-source=": {}, "--default-max-load 150%": {DefaultMaxLoad: 150},
		"--default-demand-source measured": {DefaultMeasured: true},
	} {
		flags, err := parseRunFlags(t, "--manifests x "+args)
		expectError(t, err, "")
		for viewer, view := range map[string]convert.View{"commands": flags.view(), "the daemon": flags.options().View} {
			if view.DefaultMaxLoad != want.DefaultMaxLoad || view.DefaultMeasured != want.DefaultMeasured {
				t.Errorf("%q: %+v for %s, want %+v", args, view, viewer, want)
			}
		}
	}
}

func TestFlagAliases(t *testing.T) {
	flags, err := parseRunFlags(t, "--manifests x --hostname-override NODE-B --logging-format json --iptables-sync-period 7s")
	expectError(t, err, "")
	got := []any{flags.node, flags.settings.LogFormat, flags.settings.SyncPeriod}
	if diff := cmp.Diff([]any{"node-b", "json", 7 * time.Second}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPodNeedsNoSourceFlag(t *testing.T) {
	t.Setenv(serviceHostEnv, "")
	_, err := parseRunFlags(t, "")
	expectError(t, err, "--manifests PATH, --kubeconfig FILE or --master URL is required outside of a pod")
	t.Setenv(serviceHostEnv, "10.96.0.1")
	_, err = parseRunFlags(t, "")
	expectError(t, err, "")
}

func parseRunFlags(t *testing.T, line string) (*runFlags, error) {
	t.Helper()
	var flags runFlags
	set := pflag.NewFlagSet("run", pflag.ContinueOnError)
	flags.register(set)
	if err := set.Parse(splitArgs(line)); err != nil {
		t.Fatal(err)
	}
	if err := flags.read(); err != nil {
		t.Fatal(err)
	}
	err := flags.Validate()
	return &flags, err
}
