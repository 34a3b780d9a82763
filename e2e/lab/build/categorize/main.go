// Command categorize prints which endpoints kube-proxy chooses. It reads cases from standard input, one JSON object
// each, with a Node, a Service, its EndpointSlices and an IP family. For each case it writes the result of
// CategorizeEndpoints for every port of the Service as JSON. The objects go through kube-proxy's own change trackers.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/kubernetes/pkg/proxy"
)

// request is one case.
type request struct {
	Node    string                       `json:"node"`
	Labels  map[string]string            `json:"labels"` // of the Node
	Family  corev1.IPFamily              `json:"family"`
	Service *corev1.Service              `json:"service"`
	Slices  []*discoveryv1.EndpointSlice `json:"slices"`
}

// portResult is the result for a port of the Service: endpoints as address and port, sorted.
type portResult struct {
	Cluster              []string `json:"cluster"`
	Local                []string `json:"local"`
	All                  []string `json:"all"`
	HasAny               bool     `json:"hasAny"`
	InternalLocal        bool     `json:"internalLocal"`
	ExternalLocal        bool     `json:"externalLocal"`
	ExternallyAccessible bool     `json:"externallyAccessible"`
}

func main() {
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "categorize:", err)
		os.Exit(1)
	}
}

func serve(input io.Reader, output io.Writer) error {
	decoder, encoder := json.NewDecoder(input), json.NewEncoder(output)
	for {
		var r request
		switch err := decoder.Decode(&r); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read case: %w", err)
		}
		if err := encoder.Encode(categorize(r)); err != nil {
			return fmt.Errorf("write result: %w", err)
		}
	}
}

// categorize returns the result for each port of the Service, by the port's name.
func categorize(r request) map[string]portResult {
	services, endpoints := proxy.ServicePortMap{}, proxy.EndpointsMap{}
	serviceChanges := proxy.NewServiceChangeTracker(r.Family, nil, nil)
	serviceChanges.Update(nil, r.Service)
	services.Update(serviceChanges)
	endpointChanges := proxy.NewEndpointsChangeTracker(r.Family, r.Node, nil, nil)
	for _, slice := range r.Slices {
		endpointChanges.EndpointSliceUpdate(slice, false)
	}
	endpoints.Update(endpointChanges)

	results := map[string]portResult{}
	for name, port := range services {
		cluster, local, all, hasAny := proxy.CategorizeEndpoints(endpoints[name], port, r.Node, r.Labels)
		results[name.Port] = portResult{
			Cluster: texts(cluster), Local: texts(local), All: texts(all), HasAny: hasAny,
			InternalLocal: port.InternalPolicyLocal(), ExternalLocal: port.ExternalPolicyLocal(),
			ExternallyAccessible: port.ExternallyAccessible(),
		}
	}
	return results
}

func texts(endpoints []proxy.Endpoint) []string {
	all := make([]string, len(endpoints))
	for i, endpoint := range endpoints {
		all[i] = endpoint.String()
	}
	slices.Sort(all)
	return all
}
