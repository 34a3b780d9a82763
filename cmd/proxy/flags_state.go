package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// stateFlags configure the source of the cluster's state, the node from whose point of view it is used, and the
// clients. All commands that make decisions have them.
type stateFlags struct {
	settingFlags
	manifestsFlag
	viewFlags
	master string

	// asKubectl is set if the cluster is found as in kubectl. context selects a context; empty means the current one.
	asKubectl bool
	context   string
	// withHeadless is set if DNS responses for headless Services are needed, too.
	withHeadless bool
	// topology selects the source of other nodes' labels: Nodes, unless the command has its flags. topologySource is
	// that source, after load.
	topology       topologyFlags
	topologySource string
	// otherNodes are the names of Nodes, after load, if the API server has no Node with the name in node.
	otherNodes []string
	// invalid are the invalid objects and values, after load.
	invalid []model.Finding
	// inventory counts the objects in the manifests, including unused ones; nil for an API server. lacksSlices is set
	// if the manifests lack valid EndpointSlices. isEmptyCluster is set if an API server has no Service that a proxy
	// without a name would serve.
	inventory                   convert.Inventory
	lacksSlices, isEmptyCluster bool
	// lastKnownGood are the last valid versions, active in a running proxy, of objects that are invalid now. load uses
	// them, too.
	lastKnownGood []convert.Rejection
	// running is the proxy that runs on this machine, after readRunning. actsAsRunning is set if the command is about
	// that proxy.
	running       runningProxy
	actsAsRunning bool
	// node is the name of the node to act for, after Validate.
	node string
}

// connectionSettings configure the connection to the cluster and the name of the node.
var connectionSettings = []settingFlag{
	{"node", "hostnameOverride", "`NAME` of the node to act for (default: this machine's host name in lower case)"},
	{
		"bind-address", "bindAddress",
		"`IP` of this node, used instead of the Node object's address of the same family. Nothing is bound to it; an IPv6 address makes " +
			"the default addresses of both servers IPv6, too",
	},
	{
		"kubeconfig", "clientConnection.kubeconfig",
		"`FILE` with the kubeconfig. Without it, --master and --manifests, the pod's service account is used",
	},
	{"kube-api-qps", "clientConnection.qps", "average `NUMBER` of requests per second to the API server"},
	{"kube-api-burst", "clientConnection.burst", "maximum `NUMBER` of requests to the API server in a burst"},
	{"kube-api-content-type", "clientConnection.contentType", "content `TYPE` of requests to the API server"},
}

// gateSettings select features. All commands that make decisions have them.
var gateSettings = []settingFlag{{
	"feature-gates", "featureGates",
	"`GATES` of kube-proxy, comma-separated: AllowServiceExternalIPs=false serves no external IPs. An unknown gate is an error",
}}

// register registers the flags. once is added to the help text of --manifests for commands that read it only once.
func (f *stateFlags) register(flags *pflag.FlagSet, once string, settings ...[]settingFlag) {
	f.settingFlags.register(flags, slices.Concat(append(settings, connectionSettings, gateSettings)...))
	flags.StringVar(&f.manifests, "manifests", "",
		"`PATH` of a folder with Services, EndpointSlices, Nodes, ServiceCIDRs and ServiceDemands in .yaml, .yml and .json files, as "+
			"'kubectl get -o yaml' prints them, or of one such file. "+once+"No API server is contacted then")
	if f.asKubectl {
		flags.StringVar(&f.context, "context", "", "`NAME` of the context in the kubeconfig (default: the current one)")
	}
	flags.StringVar(&f.master, "master", "", "`URL` of the API server, instead of the one in the kubeconfig")
	f.viewFlags.register(flags,
		"`NAME` that Services must have in the label service.kubernetes.io/service-proxy-name. Without it those with the label are "+
			"skipped, as in kube-proxy",
		"load bound, in `PERCENT` of the mean load, 100% to 1000%: for Services with topology keys or "+
			"trafficDistribution that have no "+policy.MaxLoadAnnotation+" of their own, and no topology-mode Auto. Without it they have no "+
			"bound; with it the proxies watch the topology of all nodes. Give all proxies the same value",
		"`SOURCE` of the demand for Services with a load bound that have neither "+policy.ClientsAnnotation+" nor "+
			policy.DemandSourceAnnotation+" of their own: "+policy.Measured+", which is the demand that the webhook measures and publishes. "+
			"Without it, and until there is a measurement, all nodes have equal demand, or that of their labels. Give all proxies the same value")
}

// viewFlags select the Services, and the defaults for Services without settings of their own.
type viewFlags struct {
	serviceProxyName, defaultMaxLoad, defaultDemandSource string

	// maxLoad is the bound in percent, 0 for none. measured is set if demand is measured by default. Both are set by
	// Validate.
	maxLoad  uint64
	measured bool
}

func (f *viewFlags) register(flags *pflag.FlagSet, name, maxLoad, demandSource string) {
	flags.StringVar(&f.serviceProxyName, "service-proxy-name", "", name)
	flags.StringVar(&f.defaultMaxLoad, "default-max-load", "", maxLoad)
	flags.StringVar(&f.defaultDemandSource, "default-demand-source", "", demandSource)
}

func (f *viewFlags) Validate() error {
	var errs []error
	if problems := validation.IsValidLabelValue(f.serviceProxyName); len(problems) > 0 {
		errs = append(errs, fmt.Errorf("--service-proxy-name: %q cannot be the value of a label: %s",
			f.serviceProxyName, strings.Join(problems, "; ")))
	}
	if f.maxLoad = 0; f.defaultMaxLoad != "" {
		var err error
		if f.maxLoad, err = policy.ParseMaxLoad(f.defaultMaxLoad); err != nil {
			errs = append(errs, fmt.Errorf("--default-max-load: %w", err))
		}
	}
	if f.measured = f.defaultDemandSource == policy.Measured; !f.measured && f.defaultDemandSource != "" {
		errs = append(errs, fmt.Errorf("--default-demand-source %q: the only value is %q; a Service names its clients with %s",
			f.defaultDemandSource, policy.Measured, policy.ClientsAnnotation))
	}
	return errors.Join(errs...)
}

// Validate checks the flags, sets the node's name, and reports all errors at once. It requires read.
func (f *stateFlags) Validate() error { return errors.Join(f.validateStateless(), f.checkOrigin()) }

// validateStateless is Validate for commands that do not need the state of a cluster.
func (f *stateFlags) validateStateless() error {
	resolveErr := f.resolve()
	var nodeErr error
	f.node, nodeErr = nodeName(f.settings.Node)
	return errors.Join(resolveErr, f.viewFlags.Validate(), nodeErr)
}

// serviceHostEnv is an environment variable of every pod. Without it client-go finds no API server by itself.
const serviceHostEnv = "KUBERNETES_SERVICE_HOST"

// checkOrigin checks that the state has a single source. --manifests overrides a kubeconfig in the file, because the
// file may be the one of a cluster.
func (f *stateFlags) checkOrigin() error {
	kubeconfig, _ := f.givenText("clientConnection.kubeconfig")
	switch {
	case f.manifests != "" && kubeconfig != "":
		return errors.New("--manifests and --kubeconfig exclude each other")
	case f.manifests != "" && f.master != "":
		return errors.New("--manifests and --master exclude each other")
	case f.manifests != "" && f.context != "":
		return errors.New("--manifests and --context exclude each other")
	case !f.asKubectl && f.manifests == "" && f.master == "" && f.settings.Connection.Kubeconfig == "" && os.Getenv(serviceHostEnv) == "":
		return errors.New("--manifests PATH, --kubeconfig FILE or --master URL is required outside of a pod: it is where the Services come from")
	}
	return nil
}

// nodeName returns the node's name as in kubelet and kube-proxy: the given name or else the host name, in lower case.
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
