package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// stateFlags say where the state of the cluster comes from, and from which node it is seen. All commands that decide
// something have them.
type stateFlags struct {
	manifests string
	node      string
}

func (f *stateFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.manifests, "manifests", "",
		"`DIR` with Services, EndpointSlices and Nodes in .yaml, .yml and .json files, as 'kubectl get -o yaml' prints them (required)")
	flags.StringVar(&f.node, "node", "", "`NAME` of the node to act for (default: this machine's host name in lower case)")
}

// Validate checks the flags, fills in the node's name, and tells every mistake at once.
func (f *stateFlags) Validate() error {
	var manifests error
	if f.manifests == "" {
		manifests = errors.New("--manifests DIR is required: it is where the Services come from")
	}
	var node error
	f.node, node = nodeName(f.node)
	return errors.Join(manifests, node)
}

// nodeName returns the node's name as kubelet and kube-proxy do: the host name unless another one is given, in lower case.
func nodeName(given string) (string, error) {
	name := strings.ToLower(strings.TrimSpace(given))
	if name != "" {
		return name, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("--node is missing and the host name is unknown: %w", err)
	}
	return strings.ToLower(strings.TrimSpace(host)), nil
}

// tableFlags say what the tables are made from: the state, and which traffic is local. Which endpoints are chosen does not
// depend on the latter, so 'explain' does without.
type tableFlags struct {
	stateFlags
	clusterCIDR string

	// clusterCIDRs holds the ranges of --cluster-cidr after Validate.
	clusterCIDRs []netip.Prefix
}

func (f *tableFlags) register(flags *pflag.FlagSet) {
	f.stateFlags.register(flags)
	flags.StringVar(&f.clusterCIDR, "cluster-cidr", "",
		"`CIDR` of the pods, at most one per family, comma-separated; connections to a ClusterIP from elsewhere are masqueraded")
}

// Validate checks all flags, reads those that have an inner form, and tells every mistake at once.
func (f *tableFlags) Validate() error {
	var cidrs error
	f.clusterCIDRs, cidrs = parseClusterCIDRs(f.clusterCIDR)
	return errors.Join(f.stateFlags.Validate(), cidrs)
}

// parseClusterCIDRs reads ranges of pod addresses, at most one of each family, and drops the bits behind each prefix.
func parseClusterCIDRs(list string) ([]netip.Prefix, error) {
	if list == "" {
		return nil, nil
	}
	var prefixes []netip.Prefix
	seen := map[model.Family]bool{}
	for text := range strings.SplitSeq(list, ",") {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("--cluster-cidr %q: %q is not a CIDR such as 10.244.0.0/16", list, text)
		}
		if prefix.Addr().Is4In6() {
			return nil, fmt.Errorf("--cluster-cidr %q: %s is an IPv4 range in IPv6 form; write it as IPv4", list, prefix)
		}
		family := model.FamilyOf(prefix.Addr())
		if seen[family] {
			return nil, fmt.Errorf("--cluster-cidr %q: more than one %s range", list, family)
		}
		seen[family] = true
		prefixes = append(prefixes, prefix.Masked())
	}
	return prefixes, nil
}

// runFlags are the flags of the daemon.
type runFlags struct {
	tableFlags
	healthAddress  string
	metricsAddress string
	logFormat      string
	logLevel       string
	ownTables      string

	// level is --log-level after Validate.
	level slog.Level
}

func (f *runFlags) register(flags *pflag.FlagSet) {
	f.tableFlags.register(flags)
	flags.StringVar(&f.healthAddress, "health-address", "0.0.0.0:10256", "`IP:PORT` that serves /healthz, /livez and /readyz")
	flags.StringVar(&f.metricsAddress, "metrics-address", "127.0.0.1:10249", "`IP:PORT` that serves /metrics")
	flags.StringVar(&f.logFormat, "log-format", "text", "`FORMAT` of the log: text or json")
	flags.StringVar(&f.logLevel, "log-level", "info", "least `LEVEL` that is logged: debug, info, warn or error")
	flags.StringVar(&f.ownTables, "own-tables", "auto",
		"`WHEN` to own our tables, so that nobody else can change them: auto, where the kernel keeps them alive without us (6.9+), or never")
}

// Validate checks all flags, reads those that have an inner form, and tells every mistake at once.
func (f *runFlags) Validate() error {
	return errors.Join(
		f.tableFlags.Validate(),
		listenAddress("health-address", f.healthAddress),
		listenAddress("metrics-address", f.metricsAddress),
		f.differentAddresses(),
		oneOf("log-format", f.logFormat, "text", "json"),
		f.parseLevel(),
		oneOf("own-tables", f.ownTables, "auto", "never"),
	)
}

// differentAddresses refuses one address for two servers early, where the message can name the flags.
func (f *runFlags) differentAddresses() error {
	if f.healthAddress != f.metricsAddress || strings.HasSuffix(f.healthAddress, ":0") {
		return nil
	}
	return fmt.Errorf("--health-address and --metrics-address are both %s: each needs its own", f.healthAddress)
}

func (f *runFlags) parseLevel() error {
	err := oneOf("log-level", f.logLevel, "debug", "info", "warn", "error")
	if err != nil {
		return err
	}
	return f.level.UnmarshalText([]byte(f.logLevel))
}

// listenAddress accepts IP:PORT, and :PORT for all addresses of the machine.
func listenAddress(flag, value string) error {
	host, port, err := net.SplitHostPort(value)
	if err != nil {
		return fmt.Errorf("--%s %q is not IP:PORT, such as 127.0.0.1:10249", flag, value)
	}
	if _, err := netip.ParseAddr(host); host != "" && err != nil {
		return fmt.Errorf("--%s %q: %q is not an IP address", flag, value, host)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("--%s %q: %q is not a port number, 0 to 65535", flag, value, port)
	}
	return nil
}

// oneOf checks the value of a flag that has only a few.
func oneOf(flag, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return fmt.Errorf("--%s %q is none of: %s", flag, value, strings.Join(allowed, ", "))
}
