package config

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	metricsfeatures "k8s.io/component-base/metrics/features"
	zpagesfeatures "k8s.io/component-base/zpages/features"
)

// The classes of kube-proxy's settings.
const (
	obeyed  = "applied"
	ignored = "logged as without meaning"
)

// expectation is the class of a setting, and what it can forbid or limit in kube-proxy. A setting that forbids something
// is applied, or neverBecause is the reason why this proxy never does what it forbids.
type result struct{ class, forbids, held string }

// expectations has every field of kube-proxy's file, and every flag without a field, except flags such as --cleanup,
// with which it does not run as a proxy. The fields are those of kube-proxy 1.37; 1.30 to 1.36 have no others. A new one
// needs a line here.
var results = map[string]result{
	"bindAddress":                         {obeyed, "other addresses of the node as primary", ""},
	"bindAddressHardFail":                 {obeyed, "to run without its servers", ""},
	"clientConnection.acceptContentTypes": {obeyed, "", ""},
	"clientConnection.burst":              {obeyed, "more requests at once", ""},
	"clientConnection.contentType":        {obeyed, "", ""},
	"clientConnection.kubeconfig":         {obeyed, "other API servers and credentials", ""},
	"clientConnection.qps":                {obeyed, "more requests", ""},
	"clusterCIDR":                         {obeyed, "to take other clients for pods", ""},
	"configSyncPeriod":                    {ignored, "", ""},
	"conntrack.maxPerCore":                {obeyed, "more tracked connections; for a larger value see the README", ""},
	"conntrack.min":                       {obeyed, "", ""},
	"conntrack.tcpBeLiberal":              {obeyed, "", ""},
	"conntrack.tcpCloseWaitTimeout":       {obeyed, "idle connections", ""},
	"conntrack.tcpEstablishedTimeout":     {obeyed, "idle connections", ""},
	"conntrack.udpStreamTimeout":          {obeyed, "idle flows", ""},
	"conntrack.udpTimeout":                {obeyed, "idle flows", ""},
	"detectLocal.bridgeInterface":         {obeyed, "to take other clients for pods", ""},
	"detectLocal.interfaceNamePrefix":     {obeyed, "to take other clients for pods", ""},
	"detectLocalMode":                     {obeyed, "to take other clients for pods", ""},
	"enableProfiling":                     {obeyed, "profiles", ""},
	"featureGates":                        {obeyed, "what each gate forbids: see gateResults", ""},
	"healthzBindAddress":                  {obeyed, "other addresses", ""},
	"hostnameOverride":                    {obeyed, "another node's view", ""},
	"iptables.localhostNodePorts":         {ignored, "node ports on loopback", noLocalhost},
	"iptables.masqueradeAll":              {ignored, "", ""},
	"iptables.masqueradeBit":              {ignored, "other bits of the mark", noMark},
	"iptables.minSyncPeriod":              {ignored, "more syncs", noPause},
	"iptables.syncPeriod":                 {ignored, "", ""},
	"ipvs.excludeCIDRs":                   {ignored, "to remove other programs' IPVS services", noIPVS},
	"ipvs.minSyncPeriod":                  {ignored, "more syncs", noPause},
	"ipvs.scheduler":                      {ignored, "", ""},
	"ipvs.strictARP":                      {ignored, "answers to ARP for addresses of a link for IPVS", noIPVS},
	"ipvs.syncPeriod":                     {ignored, "", ""},
	"ipvs.tcpFinTimeout":                  {ignored, "idle connections of IPVS", noIPVS},
	"ipvs.tcpTimeout":                     {ignored, "idle connections of IPVS", noIPVS},
	"ipvs.udpTimeout":                     {ignored, "idle flows of IPVS", noIPVS},
	"logging.flushFrequency":              {ignored, "", ""},
	"logging.format":                      {obeyed, "", ""},
	"logging.options.json.infoBufferSize": {ignored, "", ""},
	"logging.options.json.splitStream":    {ignored, "", ""},
	"logging.options.text.infoBufferSize": {ignored, "", ""},
	"logging.options.text.splitStream":    {ignored, "", ""},
	"logging.verbosity":                   {obeyed, "", ""},
	"logging.vmodule":                     {ignored, "", ""},
	"metricsBindAddress":                  {obeyed, "other addresses", ""},
	"mode":                                {ignored, "", ""},
	"nftables.masqueradeAll":              {obeyed, "", ""},
	"nftables.masqueradeBit":              {ignored, "other bits of the mark", noMark},
	"nftables.minSyncPeriod":              {ignored, "more syncs", noPause},
	"nftables.syncPeriod":                 {obeyed, "", ""},
	"nodePortAddresses":                   {obeyed, "node ports on other addresses", ""},
	"oomScoreAdj":                         {obeyed, "", ""},
	"portRange":                           {ignored, "other ports of the host", "no port is opened for a Service"},
	"showHiddenMetricsForVersion":         {ignored, "", ""},
	"windowsRunAsService":                 {ignored, "", ""},
	"winkernel.enableDSR":                 {ignored, "", ""},
	"winkernel.forwardHealthCheckVip":     {ignored, "", ""},
	"winkernel.networkName":               {ignored, "", ""},
	"winkernel.rootHnsEndpointName":       {ignored, "", ""},
	"winkernel.sourceVip":                 {ignored, "", ""},
	"--boot-id-file":                      {ignored, "", ""},
	"--machine-id-file":                   {ignored, "", ""},
	"--healthz-port":                      {ignored, "a server at all, if it is 0", "0 is refused"},
	"--metrics-port":                      {ignored, "a server at all, if it is 0", "0 is refused"},
}

// TestNothingThatForbidsIsIgnored checks all of kube-proxy's settings. TestEveryFieldHasAnEffectOrAReason checks
// whether a field is read or logged.
func TestNothingThatForbidsIsIgnored(t *testing.T) {
	settings := slices.DeleteFunc(paths(false), func(path string) bool { return path == "apiVersion" || path == "kind" })
	classes, reasons, rejected := map[string]string{}, map[string]string{}, map[string]bool{}
	for _, setting := range ignoredSettings {
		name := setting.Field
		if name == "" {
			name = "--" + setting.Flag
			settings = append(settings, name)
		}
		classes[name], reasons[name], rejected[name] = ignored, setting.Reason, setting.Rejected != "" && setting.RejectionReason != ""
	}
	for _, name := range settings {
		is, class := results[name], obeyed
		if classes[name] != "" {
			class = ignored
		}
		switch {
		case is.class != class:
			t.Errorf("%s is %s, and %q in the table", name, class, is.class)
		case class == ignored && is.forbids != "" && !rejected[name] && is.held != reasons[name]:
			t.Errorf("%s forbids %s, and is ignored because %q; in the table: %q", name, is.forbids, reasons[name], is.held)
		case rejected[name] != (is.held == "0 is refused"):
			t.Errorf("%s: a value is rejected: %v; in the table: %q", name, rejected[name], is.held)
		case class == obeyed && is.held != "":
			t.Errorf("%s is applied, but the table has a reason why it is not", name)
		}
	}
	for name := range results {
		if !slices.Contains(settings, name) {
			t.Errorf("kube-proxy has no %s", name)
		}
	}
}

// gateResult has the minor versions of kube-proxy whose code reads a gate, which value of it forbids something ("true",
// "false", or none), and what it forbids.
type gateResult struct{ setting, forbids, what string }

// gateResults are about the gates that are read in cmd/kube-proxy and pkg/proxy of kubernetes 1.30.14, 1.31.14,
// 1.32.13, 1.33.13, 1.34.4, 1.35.4, 1.36.3 and 1.37.2 (grep -rhoE 'features\.[A-Z]\w+'), and in those parts of
// client-go and component-base that kube-proxy runs. The code of apiserver, which it contains too, is for servers.
var gateResults = map[string]gateResult{
	"AllAlpha":                            {"1.30-1.37", "false", "what is alpha"},
	"AllBeta":                             {"1.30-1.37", "false", "what is beta"},
	"AllowServiceExternalIPs":             {"1.36-1.37", "false", "external IPs (serviceport.go: ExternalIPs returns none)"},
	"AtomicFIFO":                          {"1.36-1.37", "", ""},
	"ClientsAllowCARotation":              {"1.36-1.37", "", ""},
	"ClientsAllowCBOR":                    {"1.32-1.37", "", ""},
	"ClientsAllowTLSCacheGC":              {"1.36-1.37", "", ""},
	"ClientsPreferCBOR":                   {"1.32-1.37", "", ""},
	"ComponentFlagz":                      {"1.33-1.37", "false", "the page /flagz"},
	"ComponentStatusz":                    {"1.33-1.37", "false", "the page /statusz"},
	"ContextualLogging":                   {"1.30-1.37", "", ""},
	"InOrderInformers":                    {"1.33-1.37", "", ""},
	"InOrderInformersBatchProcess":        {"1.35-1.37", "", ""},
	"InformerResourceVersion":             {"1.30-1.37", "", ""},
	"KubeProxyDrainingTerminatingNodes":   {"1.30-1.32", "true", "load balancers' new connections to a node that is being deleted"},
	"KubeProxyIPVS":                       {"1.37-1.37", "false", "mode ipvs"},
	"KubeProxyNFTablesLocalhostNodePorts": {"1.37-1.37", "false", "node ports on loopback"},
	"LoadBalancerIPMode":                  {"1.30-1.34", "true", "to serve addresses in mode Proxy"},
	"LoggingAlphaOptions":                 {"1.30-1.37", "", ""},
	"LoggingBetaOptions":                  {"1.30-1.37", "", ""},
	"MultiCIDRServiceAllocator":           {"1.30-1.37", "true", "packets to unallocated addresses"},
	"NFTablesNetlink":                     {"1.37-1.37", "", ""},
	"NFTablesProxyMode":                   {"1.30-1.32", "", ""},
	"NativeHistograms":                    {"1.36-1.37", "", ""},
	"PreferSameTrafficDistribution":       {"1.33-1.37", "true", "endpoints on other nodes"},
	"ServiceTrafficDistribution":          {"1.30-1.32", "true", "endpoints in other zones"},
	"TopologyAwareHints":                  {"1.30-1.32", "true", "endpoints in other zones"},
	"UnlockWhileProcessingFIFO":           {"1.36-1.37", "", ""},
	"WatchListClient":                     {"1.30-1.37", "", ""},
	"WinDSR":                              {"1.30-1.37", "", ""},
	"WinOverlay":                          {"1.30-1.37", "", ""},
}

func TestNoGateThatForbidsIsIgnored(t *testing.T) {
	for name := range gateResults {
		if _, exists := gateOf(name); !exists {
			t.Errorf("kube-proxy reads %s, and it has no line", name)
		}
	}
	resolveWith := func(gate string, on bool) (Settings, []FieldError) {
		return Resolve(&Configuration{FeatureGates: map[string]bool{gate: on}})
	}
	for _, gate := range Gates() {
		t.Run(gate.Name, func(t *testing.T) {
			is, exists := gateResults[gate.Name]
			if !exists || gate.Reason == "" {
				t.Errorf("no kube-proxy reads it, or it has no reason: %+v", gate)
			}
			since, until := is.setting[:len("1.30")], is.setting[len("1.30-"):]
			if has := gateVersions()[gate.Name]; has[0] > since || has[1] < until {
				t.Errorf("it is read in %s, and accepted from %s to %s", is.setting, has[0], has[1])
			}
			on, errorsOn := resolveWith(gate.Name, true)
			off, errorsOff := resolveWith(gate.Name, false)
			if len(errorsOn)+len(errorsOff) > 0 {
				t.Fatalf("rejected: %v, %v", errorsOn, errorsOff)
			}
			if changes := !cmp.Equal(on, off, equateValues); changes != gate.IsConfigurable {
				t.Errorf("it changes the settings: %v; IsConfigurable: %v", changes, gate.IsConfigurable)
			}
			if never := map[string]bool{"true": true, "false": false}; !gate.IsConfigurable && is.forbids != "" && never[is.forbids] != gate.IsOn {
				t.Errorf("%s forbids %s, and here it is always %v", is.forbids, is.what, gate.IsOn)
			}
		})
	}
}

func TestTheListOfAllGatesIsThatOfKubernetes(t *testing.T) {
	for name, has := range gateVersions() {
		if name == "" || has[0] < "1.30" || has[1] > "1.37" || has[0] > has[1] {
			t.Errorf("%s from %s to %s", name, has[0], has[1])
		}
	}
	// From the --help and the sources of kubernetes.
	for name, want := range map[string][2]string{
		"AllAlpha": {"1.30", "1.37"}, "AllowServiceExternalIPs": {"1.36", "1.37"}, "APIPriorityAndFairness": {"1.30", "1.30"},
		"StrictIPCIDRValidation": {"1.33", "1.37"}, "WatchListClient": {"1.30", "1.37"}, "NFTablesNetlink": {"1.37", "1.37"},
	} {
		if gateVersions()[name] != want {
			t.Errorf("%s exists in %v, want %v", name, gateVersions()[name], want)
		}
	}
	if count := len(gateVersions()); count != 351 {
		t.Errorf("%d gates, want 351", count)
	}
}

// clientGates are the names of the gates that client-go registers.
type clientGates []string

func (g *clientGates) AddVersioned(gates map[clientfeatures.Feature]clientfeatures.VersionedSpecs) error {
	for name := range gates {
		*g = append(*g, string(name))
	}
	return nil
}

// kube-proxy has these gates from its libraries, which this program uses, too. The test fails if a library adds a gate.
func TestTheGatesOfLibrariesHaveALine(t *testing.T) {
	registry, names := featuregate.NewFeatureGate(), clientGates{}
	err := errors.Join(logsapi.AddFeatureGates(registry), metricsfeatures.AddFeatureGates(registry),
		zpagesfeatures.AddFeatureGates(registry), clientfeatures.AddVersionedFeaturesToExistingFeatureGates(&names))
	if err != nil {
		t.Fatal(err)
	}
	for name := range registry.GetAll() {
		names = append(names, string(name))
	}
	if len(names) < 15 {
		t.Errorf("only %q", names)
	}
	for _, name := range names {
		if _, isThere := gateOf(name); !isThere || gateVersions()[name][1] == "" {
			t.Errorf("%s has no line, or Kubernetes does not have it", name)
		}
	}
}

func TestGates(t *testing.T) {
	type outcome struct {
		ExternalIPs, Flagz, Statusz bool
		IgnoredSettings             []string
		Wrong                       string
	}
	for text, want := range map[string]outcome{
		"":                                  {true, true, true, nil, ""},
		"AllowServiceExternalIPs=true":      {true, true, true, nil, ""},
		"AllowServiceExternalIPs=false":     {false, true, true, nil, ""},
		"AllBeta=false":                     {true, false, false, nil, ""},
		"AllBeta=false,ComponentFlagz=true": {true, true, false, nil, ""},
		"ComponentStatusz=false":            {true, true, false, nil, ""},
		"AllAlpha=true,AllBeta=true":        {true, true, true, nil, ""},
		"KubeProxyIPVS=false,NFTablesProxyMode=true,AllAlpha=false": {true, true, true, nil, ""},
		"KubeProxyIPVS=true,TopologyAwareHints=false,SidecarContainers=true": {true, true, true, []string{
			"featureGates.KubeProxyIPVS: IPVS is not used",
			"featureGates.SidecarContainers: it has no effect in a proxy",
			"featureGates.TopologyAwareHints: hints are followed where all endpoints have them",
		}, ""},
		"AllowServiceExternalIP=false": {true, true, true, nil,
			`"AllowServiceExternalIP" is not a feature gate of Kubernetes 1.30 to 1.37; did you mean AllowServiceExternalIPs?`},
		"allowServiceExternalIPs=false": {true, true, true, nil,
			`"allowServiceExternalIPs" is not a feature gate of Kubernetes 1.30 to 1.37; did you mean AllowServiceExternalIPs?`},
	} {
		t.Run(text, func(t *testing.T) {
			c := &Configuration{}
			if err := Set(c, "featureGates", text); err != nil {
				t.Fatal(err)
			}
			settings, fieldErrors := Resolve(c)
			got := outcome{settings.ExternalIPs, settings.Flagz, settings.Statusz, GateMessages(c), ""}
			for _, one := range fieldErrors {
				got.Wrong += one.Reason
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
