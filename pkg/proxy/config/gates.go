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

// Gate is a feature gate that changes what some kube-proxy from 1.30 to 1.37 does.
type Gate struct {
	Name string
	// IsOn is its state here while nothing sets it.
	IsOn bool
	// IsObeyed: it can be set. Otherwise it is always as IsOn says.
	IsObeyed bool
	// IsAlpha: AllAlpha sets it, where it is not set itself; IsBeta: AllBeta does.
	IsAlpha, IsBeta bool
	// Reason says in a few words what it does, if it is obeyed; else why it cannot be set.
	Reason string
}

// The gates that are obeyed.
const (
	allowServiceExternalIPs = "AllowServiceExternalIPs"
	componentFlagz          = "ComponentFlagz"
	componentStatusz        = "ComponentStatusz"
	localhostNodePorts      = "KubeProxyNFTablesLocalhostNodePorts"
	allAlpha                = "AllAlpha"
	allBeta                 = "AllBeta"
)

const (
	hints    = "hints are followed where all endpoints have them"
	follower = "how the API server is followed and asked cannot be chosen"
	logGate  = "the log has a form of its own"
)

// gates lists them. Where a gate forbids something, it is obeyed, or the thing is never done here.
//
// AllowServiceExternalIPs stays on until somebody sets it, also when Kubernetes 1.40 turns it off by default: this
// program does not know the cluster's version, and updating this program must not take away addresses that are in use.
var gates = []Gate{
	{Name: allAlpha, IsObeyed: true, Reason: "true serves node ports on loopback, if its own gate does not forbid it"},
	{Name: allBeta, IsObeyed: true, Reason: "false closes `/flagz` and `/statusz`, if their own gates do not open them"},
	{Name: allowServiceExternalIPs, IsOn: true, IsObeyed: true, Reason: "false serves no external IPs"},
	{Name: "AtomicFIFO", IsOn: true, Reason: follower},
	{Name: "ClientsAllowCARotation", IsOn: true, Reason: follower},
	{Name: "ClientsAllowCBOR", Reason: follower},
	{Name: "ClientsAllowTLSCacheGC", IsOn: true, Reason: follower},
	{Name: "ClientsPreferCBOR", Reason: follower},
	{Name: componentFlagz, IsOn: true, IsObeyed: true, IsBeta: true, Reason: "false closes the page `/flagz`"},
	{Name: componentStatusz, IsOn: true, IsObeyed: true, IsBeta: true, Reason: "false closes the page `/statusz`"},
	{Name: "ContextualLogging", IsOn: true, Reason: logGate},
	{Name: "InOrderInformers", IsOn: true, Reason: follower},
	{Name: "InOrderInformersBatchProcess", IsOn: true, Reason: follower},
	{Name: "InformerResourceVersion", IsOn: true, Reason: follower},
	{Name: "KubeProxyDrainingTerminatingNodes", IsOn: true, Reason: "the health check of a node that leaves always says so"},
	{Name: "KubeProxyIPVS", Reason: noIPVS},
	{
		Name: localhostNodePorts, IsObeyed: true, IsAlpha: true,
		Reason: "true serves TCP node ports on the loopback addresses that `nodePortAddresses` names, " +
			"and refuses and counts what else is sent to node ports on loopback",
	},
	{Name: "LoadBalancerIPMode", IsOn: true, Reason: "ipMode is always followed"},
	{Name: "LoggingAlphaOptions", Reason: logGate},
	{Name: "LoggingBetaOptions", IsOn: true, Reason: logGate},
	{Name: "MultiCIDRServiceAllocator", IsOn: true, Reason: "ServiceCIDRs are followed where there are some"},
	{Name: "NFTablesNetlink", IsOn: true, Reason: "the kernel is asked by netlink alone"},
	{Name: "NFTablesProxyMode", IsOn: true, Reason: "nftables is what is programmed"},
	{Name: "NativeHistograms", Reason: "histograms have fixed buckets"},
	{Name: "PreferSameTrafficDistribution", IsOn: true, Reason: hints},
	{Name: "ServiceTrafficDistribution", IsOn: true, Reason: hints},
	{Name: "TopologyAwareHints", IsOn: true, Reason: hints},
	{Name: "UnlockWhileProcessingFIFO", IsOn: true, Reason: follower},
	{Name: "WatchListClient", IsOn: true, Reason: follower},
	{Name: "WinDSR", Reason: noWindows},
	{Name: "WinOverlay", Reason: noWindows},
}

// featureGates has a line for each gate that some kube-proxy from 1.30 to 1.37 accepts: its name, and the first and last
// minor version. kube-proxy takes the gates of all components, because tools write one list into the files of all.
//
//go:embed feature_gates.txt
var featureGates string

// versions are the lines of featureGates: the first and the last version of each gate.
var versions = sync.OnceValue(func() map[string][2]string {
	found := map[string][2]string{}
	for line := range strings.Lines(featureGates) {
		if words := strings.Fields(line); len(words) == 3 && words[0] != "#" {
			found[words[0]] = [2]string{words[1], words[2]}
		}
	}
	return found
})

// Gates returns every feature gate that changes something in kube-proxy.
func Gates() []Gate { return slices.Clone(gates) }

func gateOf(name string) (Gate, bool) {
	at := slices.IndexFunc(gates, func(gate Gate) bool { return gate.Name == name })
	if at < 0 {
		return Gate{}, false
	}
	return gates[at], true
}

// isOn reports whether a gate is on: as it is set, else as all gates of its stage are set, else by its default.
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

// gates refuses those that no kube-proxy has, as kube-proxy does: one that is mistyped, or newer than this program, may
// be there to forbid something.
func (c *checker) gates(set map[string]bool) {
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if _, isKnown := versions()[name]; !isKnown {
			c.wrong("featureGates", "%q is not a feature gate of Kubernetes 1.30 to 1.37%s", name, suggestGate(name))
		}
	}
}

// suggestGate names the gate that was probably meant.
func suggestGate(name string) string {
	for _, known := range slices.Sorted(maps.Keys(versions())) {
		if strings.EqualFold(name, known) || policy.IsTypo(name, known) {
			return fmt.Sprintf("; did you mean %s?", known)
		}
	}
	return ""
}

// GateMessages returns a line for each feature gate that is set to something else than what is done here.
func GateMessages(c *Configuration) []string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(c.FeatureGates)) {
		_, isKnown := versions()[name]
		switch gate, changesProxies := gateOf(name); {
		case isKnown && !changesProxies:
			lines = append(lines, "featureGates."+name+": it changes nothing in a proxy")
		case changesProxies && !gate.IsObeyed && gate.IsOn != c.FeatureGates[name]:
			lines = append(lines, "featureGates."+name+": "+gate.Reason)
		}
	}
	return lines
}

// setGates sets the gates that a text names, as kube-proxy's flag has it: A=true,B=false.
func setGates(gates *map[string]bool, text string) error {
	var named map[string]bool
	if err := flag.NewMapStringBool(&named).Set(text); err != nil {
		return err
	}
	if *gates == nil {
		*gates = map[string]bool{}
	}
	maps.Copy(*gates, named)
	return nil
}

// textOfGates writes gates as setGates reads them.
func textOfGates(gates map[string]bool) string { return flag.NewMapStringBool(&gates).String() }
