package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/apiserver"
)

// topologyFlags select the source of other nodes' labels.
type topologyFlags struct {
	source, namespace, proxies string
}

func (f *topologyFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.source, "node-topology-source", string(apiserver.AutoTopology),
		"`SOURCE` of the topology of other nodes, if a Service needs it: nodes, the metadata of every Node; slices, the TopologySlices that "+
			"a webhook publishes; proxies, the EndpointSlices of --proxy-service, which have only zones; auto, slices while they are "+
			"published, else proxies while they are on nearly all nodes and no Service needs more, and nodes otherwise")
	registerPublisher(flags, &f.namespace)
	flags.StringVar(&f.proxies, "proxy-service", "kube-system/vicinity-proxy",
		"`NAMESPACE/NAME` of the headless Service for the proxies' own pods; empty if there is none")
}

// registerPublisher registers the flag with the namespace of the publisher. Every command that decides as proxies do
// has it.
func registerPublisher(flags *pflag.FlagSet, namespace *string) {
	flags.StringVar(namespace, "topology-namespace", "vicinity-system",
		"`NAMESPACE` of the webhook that publishes TopologySlices and ServiceDemands, and of its Leases, which keep them valid")
}

func (f *topologyFlags) Validate() error {
	var errs []error
	sources := []string{
		string(apiserver.AutoTopology), string(apiserver.SlicesTopology), string(apiserver.ProxiesTopology), string(apiserver.NodesTopology),
	}
	if !slices.Contains(sources, f.source) {
		errs = append(errs, fmt.Errorf("--node-topology-source %q must be one of %q", f.source, sources))
	}
	service := f.proxyService()
	if f.proxies != "" && (service.Namespace == "" || service.Name == "" || strings.Contains(service.Name, "/")) {
		errs = append(errs, fmt.Errorf("--proxy-service %q is not NAMESPACE/NAME, such as kube-system/vicinity-proxy", f.proxies))
	}
	if f.proxies == "" && f.source == string(apiserver.ProxiesTopology) {
		errs = append(errs, errors.New("--node-topology-source proxies needs --proxy-service"))
	}
	return errors.Join(errs...)
}

// proxyService returns the Service over the proxies' pods; the zero value means none.
func (f *topologyFlags) proxyService() model.ObjectName {
	namespace, name, _ := strings.Cut(f.proxies, "/")
	return model.ObjectName{Namespace: namespace, Name: name}
}
