package config

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/component-base/cli/flag"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// Gate is a feature gate that changes the behaviour of some kube-proxy from 1.30 to 1.37.
type Gate struct {
	Name string
	// IsOn is its default here.
	IsOn bool
	// IsConfigurable reports whether it can be set. Otherwise it always has the value of IsOn.
	IsConfigurable bool
	// IsAlpha and IsBeta report whether AllAlpha or AllBeta sets it, if it is not set itself.
	IsAlpha, IsBeta bool
	// Reason describes its effect in a few words, or why it cannot be set.
	Reason string
}

// The gates that can be set.
const (
	allowServiceExternalIPs = "AllowServiceExternalIPs"
	componentFlagz          = "ComponentFlagz"
	componentStatusz        = "ComponentStatusz"
	localhostNodePorts      = "KubeProxyNFTablesLocalhostNodePorts"
	allAlpha                = "AllAlpha"
	allBeta                 = "AllBeta"
)

const (
	hintsReason      = "hints are followed where all endpoints have them"
	apiReadingReason = "reading from the API server is not configurable"
	logFormatReason  = "the log has its own format"
)

// gates are all gates that change kube-proxy. A gate that forbids something can be set, unless this program never does
// it.
//
// AllowServiceExternalIPs stays on until it is set, also when Kubernetes 1.40 turns it off by default: this program
// does not know the cluster's version, and an update of this program must not remove addresses that are in use.
var gates = []Gate{
	{Name: allAlpha, IsConfigurable: true, Reason: "true serves node ports on loopback, unless that gate itself is false"},
	{Name: allBeta, IsConfigurable: true, Reason: "false disables `/flagz` and `/statusz`, unless their own gates are true"},
	{Name: allowServiceExternalIPs, IsOn: true, IsConfigurable: true, Reason: "false serves no external IPs"},
	{Name: "AtomicFIFO", IsOn: true, Reason: apiReadingReason},
	{Name: "ClientsAllowCARotation", IsOn: true, Reason: apiReadingReason},
	{Name: "ClientsAllowCBOR", Reason: apiReadingReason},
	{Name: "ClientsAllowTLSCacheGC", IsOn: true, Reason: apiReadingReason},
	{Name: "ClientsPreferCBOR", Reason: apiReadingReason},
	{Name: componentFlagz, IsOn: true, IsConfigurable: true, IsBeta: true, Reason: "false disables the page `/flagz`"},
	{Name: componentStatusz, IsOn: true, IsConfigurable: true, IsBeta: true, Reason: "false disables the page `/statusz`"},
	{Name: "ContextualLogging", IsOn: true, Reason: logFormatReason},
	{Name: "InOrderInformers", IsOn: true, Reason: apiReadingReason},
	{Name: "InOrderInformersBatchProcess", IsOn: true, Reason: apiReadingReason},
	{Name: "InformerResourceVersion", IsOn: true, Reason: apiReadingReason},
	{Name: "KubeProxyDrainingTerminatingNodes", IsOn: true, Reason: "the health check of a node that is being deleted always fails"},
	{Name: "KubeProxyIPVS", Reason: noIPVS},
	{
		Name: localhostNodePorts, IsConfigurable: true, IsAlpha: true,
		Reason: "true serves TCP node ports on the loopback addresses that `nodePortAddresses` names, " +
			"and rejects and counts other packets to node ports on loopback",
	},
	{Name: "LoadBalancerIPMode", IsOn: true, Reason: "ipMode is always followed"},
	{Name: "LoggingAlphaOptions", Reason: logFormatReason},
	{Name: "LoggingBetaOptions", IsOn: true, Reason: logFormatReason},
	{Name: "MultiCIDRServiceAllocator", IsOn: true, Reason: "ServiceCIDRs are used if there are any"},
	{Name: "NFTablesNetlink", IsOn: true, Reason: "the kernel is accessed only by netlink"},
	{Name: "NFTablesProxyMode", IsOn: true, Reason: "nftables is always programmed"},
	{Name: "NativeHistograms", Reason: "histograms have fixed buckets"},
	{Name: "PreferSameTrafficDistribution", IsOn: true, Reason: hintsReason},
	{Name: "ServiceTrafficDistribution", IsOn: true, Reason: hintsReason},
	{Name: "TopologyAwareHints", IsOn: true, Reason: hintsReason},
	{Name: "UnlockWhileProcessingFIFO", IsOn: true, Reason: apiReadingReason},
	{Name: "WatchListClient", IsOn: true, Reason: apiReadingReason},
	{Name: "WinDSR", Reason: noWindows},
	{Name: "WinOverlay", Reason: noWindows},
}

// featureGates has a line for each gate that some kube-proxy from 1.30 to 1.37 accepts: its name, and the first and
// last minor version. kube-proxy accepts the gates of all components, because tools write the same list into all files.
//
//go:embed feature_gates.txt
var featureGates string

// gateVersions are the first and the last version of each gate in featureGates.
var gateVersions = sync.OnceValue(func() map[string][2]string {
	found := map[string][2]string{}
	for line := range strings.Lines(featureGates) {
		if words := strings.Fields(line); len(words) == 3 && words[0] != "#" {
			found[words[0]] = [2]string{words[1], words[2]}
		}
	}
	return found
})

// Gates returns every feature gate that changes the behaviour of kube-proxy.
func Gates() []Gate { return slices.Clone(gates) }

func gateOf(name string) (Gate, bool) {
	i := slices.IndexFunc(gates, func(gate Gate) bool { return gate.Name == name })
	if i < 0 {
		return Gate{}, false
	}
	return gates[i], true
}

// isOn reports whether a gate is on: by its own setting, else by the setting for all gates of its stage, else by its
// default.
func isOn(set map[string]bool, name string) bool {
	gate, _ := gateOf(name)
	if on, isSet := set[name]; isSet {
		return on
	}
	if on, isSet := set[allAlpha]; isSet && gate.IsAlpha {
		return on
	}
	if on, isSet := set[allBeta]; isSet && gate.IsBeta {
		return on
	}
	return gate.IsOn
}

// gates rejects gates that no kube-proxy has, as kube-proxy does: a gate that is mistyped, or newer than this program,
// may be set to forbid something.
func (c *checker) gates(set map[string]bool) {
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if _, isKnown := gateVersions()[name]; !isKnown {
			c.addError("featureGates", "%q is not a feature gate of Kubernetes 1.30 to 1.37%s", name, suggestGate(name))
		}
	}
}

// suggestGate returns a suggestion for a misspelled gate.
func suggestGate(name string) string {
	for _, known := range slices.Sorted(maps.Keys(gateVersions())) {
		if strings.EqualFold(name, known) || policy.IsTypo(name, known) {
			return fmt.Sprintf("; did you mean %s?", known)
		}
	}
	return ""
}

// GateMessages returns a line for each feature gate whose setting differs from the behaviour here.
func GateMessages(c *Configuration) []string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(c.FeatureGates)) {
		_, isKnown := gateVersions()[name]
		switch gate, changesProxies := gateOf(name); {
		case isKnown && !changesProxies:
			lines = append(lines, "featureGates."+name+": it has no effect in a proxy")
		case changesProxies && !gate.IsConfigurable && gate.IsOn != c.FeatureGates[name]:
			lines = append(lines, "featureGates."+name+": "+gate.Reason)
		}
	}
	return lines
}

// setGates sets the gates that a text names, in the format of kube-proxy's flag: A=true,B=false.
func setGates(gates *map[string]bool, text string) error {
	var parsed map[string]bool
	if err := flag.NewMapStringBool(&parsed).Set(text); err != nil {
		return err
	}
	if *gates == nil {
		*gates = map[string]bool{}
	}
	maps.Copy(*gates, parsed)
	return nil
}

// textOfGates returns gates in the format of setGates.
func textOfGates(gates map[string]bool) string { return flag.NewMapStringBool(&gates).String() }
