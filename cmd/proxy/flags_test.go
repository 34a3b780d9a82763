package main

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// expectError wants an error that contains some text, or none if the text is empty.
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
	tests := map[string]struct {
		args string
		err  string
	}{
		"the defaults are right":               {args: ""},
		"all addresses of the machine":         {args: "--health-address :10256"},
		"an IPv6 address":                      {args: "--metrics-address [::1]:10249"},
		"any free port, twice":                 {args: "--health-address 127.0.0.1:0 --metrics-address 127.0.0.1:0"},
		"an address without a port":            {args: "--health-address 127.0.0.1", err: `--health-address "127.0.0.1" is not IP:PORT`},
		"a host name":                          {args: "--health-address localhost:80", err: `"localhost" is not an IP address`},
		"a service name for a port":            {args: "--metrics-address 127.0.0.1:http", err: `"http" is not a port number`},
		"a port that is too large":             {args: "--metrics-address 127.0.0.1:65536", err: `"65536" is not a port number`},
		"one address for two servers":          {args: "--health-address :1 --metrics-address :1", err: "each needs its own"},
		"an unknown log format":                {args: "--log-format xml", err: `--log-format "xml" is none of: text, json`},
		"an unknown log level":                 {args: "--log-level loud", err: `--log-level "loud" is none of: debug, info, warn, error`},
		"an unknown answer to who owns tables": {args: "--own-tables always", err: `--own-tables "always" is none of: auto, never`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := parseRunFlags(t, "--manifests x "+test.args)
			expectError(t, err, test.err)
		})
	}
}

func TestTheLogLevelIsRead(t *testing.T) {
	for text, want := range map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
	} {
		flags, err := parseRunFlags(t, "--manifests x --log-level "+text)
		if err != nil || flags.level != want {
			t.Errorf("--log-level %s: level %v, error %v; want %v", text, flags.level, err, want)
		}
	}
}

func TestAllMistakesInRunFlagsAreTold(t *testing.T) {
	_, err := parseRunFlags(t, "--log-format xml --log-level loud --own-tables always --health-address x --cluster-cidr y "+
		"--detect-local-mode BridgeInterface --nodeport-addresses z")
	for _, flag := range []string{
		"--manifests", "--log-format", "--log-level", "--own-tables", "--health-address", "--cluster-cidr", "--pod-bridge-interface",
		"--nodeport-addresses",
	} {
		expectError(t, err, flag)
	}
}

func parseRunFlags(t *testing.T, line string) (runFlags, error) {
	t.Helper()
	var flags runFlags
	set := pflag.NewFlagSet("run", pflag.ContinueOnError)
	flags.register(set)
	if err := set.Parse(words(line)); err != nil {
		t.Fatal(err)
	}
	return flags, flags.Validate()
}
