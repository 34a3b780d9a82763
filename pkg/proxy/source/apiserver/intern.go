package apiserver

import (
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// maxInterned bounds the table of an interner. The names of nodes, zones and ports of a large cluster fit in. If a
// cluster brings more and more names, the table is cleared, which costs little.
const maxInterned = 1 << 16

// interner makes equal strings share their bytes. Each object that arrives has strings of its own, and 100,000
// endpoints name the same thousand nodes. It is not safe for concurrent use.
type interner struct {
	strings map[string]string
	lists   map[string][]string
}

// string returns the interned copy of a string.
func (i *interner) string(text string) string {
	if text == "" {
		return ""
	}
	if known, ok := i.strings[text]; ok {
		return known
	}
	if i.strings == nil || len(i.strings) >= maxInterned {
		i.strings = map[string]string{}
	}
	i.strings[text] = text
	return text
}

// list returns the interned copy of a list. It must not be changed.
func (i *interner) list(texts []string) []string {
	if len(texts) == 0 {
		return nil
	}
	key := strings.Join(texts, "\x00") // names of nodes and zones cannot contain this byte
	if known, ok := i.lists[key]; ok {
		return known
	}
	if i.lists == nil || len(i.lists) >= maxInterned {
		i.lists = map[string][]string{}
	}
	i.lists[key] = texts
	return texts
}

// value interns the strings that many values share. The caller must hold the only reference to the value.
func (i *interner) value(value any) any {
	switch value := value.(type) {
	case *model.Service:
		i.service(value)
	case *model.EndpointSlice:
		i.slice(value)
	case *model.Node:
		i.node(value)
	case *model.Demand:
		zones := make(map[string]uint32, len(value.Zones))
		for name, demand := range value.Zones {
			zones[i.string(name)] = demand
		}
		value.Zones = zones
	case *model.TopologySlice:
		for _, node := range value.Nodes {
			i.node(node)
		}
	}
	return value
}

// service interns the strings that many Services share.
func (i *interner) service(service *model.Service) {
	service.Name.Namespace = i.string(service.Name.Namespace)
	for k := range service.Ports {
		service.Ports[k].Name = i.string(service.Ports[k].Name)
	}
}

// slice interns the strings that many slices and endpoints share.
func (i *interner) slice(slice *model.EndpointSlice) {
	slice.Name.Namespace = i.string(slice.Name.Namespace)
	slice.Service.Namespace = slice.Name.Namespace
	for k := range slice.Ports {
		slice.Ports[k].Name = i.string(slice.Ports[k].Name)
	}
	for k := range slice.Endpoints {
		endpoint := &slice.Endpoints[k].Endpoint
		endpoint.Node, endpoint.Zone = i.string(endpoint.Node), i.string(endpoint.Zone)
		endpoint.HintNodes, endpoint.HintZones = i.list(endpoint.HintNodes), i.list(endpoint.HintZones)
	}
}

// node interns the labels of a node.
func (i *interner) node(node *model.Node) {
	labels := make(map[string]string, len(node.Labels))
	for key, value := range node.Labels {
		labels[i.string(key)] = i.string(value)
	}
	node.Labels = labels
}
