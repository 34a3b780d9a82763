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
	applied = "applied"
	ignored = "logged as without meaning"
)

// expectation is the class of a setting, and what it can forbid or limit in kube-proxy. A setting that forbids something
// is applied, or neverBecause is the reason why this proxy never does what it forbids.
type expectation struct{ class, forbids, neverBecause string }

// expectations has every field of kube-proxy's file, and every flag without a field, except flags such as --cleanup,
// with which it does not run as a proxy. The fields are those of kube-proxy 1.37; 1.30 to 1.36 have no others. A new one
// needs a line here.
var expectations = map[string]expectation{
	"bindAddress":                         {applied, "other addresses of the node as primary", ""},
	"bindAddressHardFail":                 {applied, "to run without its servers", ""},
	"clientConnection.acceptContentTypes": {applied, "", ""},
	"clientConnection.burst":              {applied, "more requests at once", ""},
	"clientConnection.contentType":        {applied, "", ""},
	"clientConnection.kubeconfig":         {applied, "other API servers and credentials", ""},
	"clientConnection.qps":                {applied, "more requests", ""},
	"clusterCIDR":                         {applied, "to take other clients for pods", ""},
	"configSyncPeriod":                    {ignored, "", ""},
	"conntrack.maxPerCore":                {applied, "more tracked connections; for a larger value see the README", ""},
	"conntrack.min":                       {applied, "", ""},
	"conntrack.tcpBeLiberal":              {applied, "", ""},
	"conntrack.tcpCloseWaitTimeout":       {applied, "idle connections", ""},
	"conntrack.tcpEstablishedTimeout":     {applied, "idle connections", ""},
	"conntrack.udpStreamTimeout":          {applied, "idle flows", ""},
	"conntrack.udpTimeout":                {applied, "idle flows", ""},
	"detectLocal.bridgeInterface":         {applied, "to take other clients for pods", ""},
	"detectLocal.interfaceNamePrefix":     {applied, "to take other clients for pods", ""},
	"detectLocalMode":                     {applied, "to take other clients for pods", ""},
	"enableProfiling":                     {applied, "profiles", ""},
	"featureGates":                        {applied, "what each gate forbids: see gateResults", ""},
	"healthzBindAddress":                  {applied, "other addresses", ""},
	"hostnameOverride":                    {applied, "another node's view", ""},
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
	"logging.format":                      {applied, "", ""},
	"logging.options.json.infoBufferSize": {ignored, "", ""},
	"logging.options.json.splitStream":    {ignored, "", ""},
	"logging.options.text.infoBufferSize": {ignored, "", ""},
	"logging.options.text.splitStream":    {ignored, "", ""},
	"logging.verbosity":                   {applied, "", ""},
	"logging.vmodule":                     {ignored, "", ""},
	"metricsBindAddress":                  {applied, "other addresses", ""},
	"mode":                                {ignored, "", ""},
	"nftables.masqueradeAll":              {applied, "", ""},
	"nftables.masqueradeBit":              {ignored, "other bits of the mark", noMark},
	"nftables.minSyncPeriod":              {ignored, "more syncs", noPause},
	"nftables.syncPeriod":                 {applied, "", ""},
	"nodePortAddresses":                   {applied, "node ports on other addresses", ""},
	"oomScoreAdj":                         {applied, "", ""},
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
	settings := slices.DeleteFunc(fieldPaths(false), func(path string) bool { return path == "apiVersion" || path == "kind" })
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
		want, class := expectations[name], applied
		if classes[name] != "" {
			class = ignored
		}
		switch {
		case want.class != class:
			t.Errorf("%s is %s, and %q in the table", name, class, want.class)
		case class == ignored && want.forbids != "" && !rejected[name] && want.neverBecause != reasons[name]:
			t.Errorf("%s forbids %s, and is ignored because %q; in the table: %q", name, want.forbids, reasons[name], want.neverBecause)
		case rejected[name] != (want.neverBecause == "0 is refused"):
			t.Errorf("%s: a value is rejected: %v; in the table: %q", name, rejected[name], want.neverBecause)
		case class == applied && want.neverBecause != "":
			t.Errorf("%s is applied, but the table has a reason why it is not", name)
		}
	}
	for name := range expectations {
		if !slices.Contains(settings, name) {
			t.Errorf("kube-proxy has no %s", name)
		}
	}
}

// gateResult has the minor versions of kube-proxy whose code reads a gate, which value of it forbids something ("true",
// "false", or none), and what it forbids.
type gateResult struct{ versions, forbids, forbidden string }

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
			want, exists := gateResults[gate.Name]
			if !exists || gate.Reason == "" {
				t.Errorf("no kube-proxy reads it, or it has no reason: %+v", gate)
			}
			since, until := want.versions[:len("1.30")], want.versions[len("1.30-"):]
			if accepted := gateVersions()[gate.Name]; accepted[0] > since || accepted[1] < until {
				t.Errorf("it is read in %s, and accepted from %s to %s", want.versions, accepted[0], accepted[1])
			}
			on, errorsOn := resolveWith(gate.Name, true)
			off, errorsOff := resolveWith(gate.Name, false)
			if len(errorsOn)+len(errorsOff) > 0 {
				t.Fatalf("rejected: %v, %v", errorsOn, errorsOff)
			}
			if changes := !cmp.Equal(on, off, equateValues); changes != gate.IsConfigurable {
				t.Errorf("it changes the settings: %v; IsConfigurable: %v", changes, gate.IsConfigurable)
			}
			if never := map[string]bool{"true": true, "false": false}; !gate.IsConfigurable && want.forbids != "" &&
				never[want.forbids] != gate.IsOn {
				t.Errorf("%s forbids %s, and here it is always %v", want.forbids, want.forbidden, gate.IsOn)
			}
		})
	}
}

func TestTheListOfAllGatesIsThatOfKubernetes(t *testing.T) {
	for name, versions := range gateVersions() {
		if name == "" || versions[0] < "1.30" || versions[1] > "1.37" || versions[0] > versions[1] {
			t.Errorf("%s from %s to %s", name, versions[0], versions[1])
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
		if _, exists := gateOf(name); !exists || gateVersions()[name][1] == "" {
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
			for _, fieldError := range fieldErrors {
				got.Wrong += fieldError.Reason
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
