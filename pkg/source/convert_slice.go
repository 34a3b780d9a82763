package source

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// The API server's bounds of an EndpointSlice.
const (
	maxSliceEndpoints    = 1000
	maxSlicePorts        = 20000
	maxEndpointAddresses = 100
	maxEndpointHints     = 8
)

// EndpointSlice turns a discovery/v1 EndpointSlice into a value of the model. It returns nil and no error for a slice that
// is not ours to serve: one of a headless Service, of no Service, or with names instead of addresses.
func EndpointSlice(slice *discoveryv1.EndpointSlice) (*model.EndpointSlice, field.ErrorList) {
	service, serves := servedService(slice)
	if !serves {
		return nil, nil
	}
	metadata := field.NewPath("metadata")
	errs := checkNamespace(metadata.Child("namespace"), slice.Namespace)
	errs = append(errs, checkName(metadata.Child("name"), slice.Name, validation.IsDNS1123Subdomain)...)
	errs = append(errs, checkName(metadata.Child("labels").Key(discoveryv1.LabelServiceName), service, validation.IsDNS1123Label)...)

	family, refused := readAddressType(field.NewPath("addressType"), slice.AddressType)
	errs = append(errs, refused...)
	ports, refused := readSlicePorts(field.NewPath("ports"), slice.Ports)
	errs = append(errs, refused...)
	endpoints, refused := readEndpoints(field.NewPath("endpoints"), family, slice.Endpoints)
	errs = append(errs, refused...)
	if len(errs) > 0 {
		return nil, errs
	}
	return &model.EndpointSlice{
		Name:      model.ObjectName{Namespace: slice.Namespace, Name: slice.Name},
		Service:   model.ObjectName{Namespace: slice.Namespace, Name: service},
		Family:    *family,
		Ports:     ports,
		Endpoints: endpoints,
	}, nil
}

// servedService returns the name of the Service that a slice belongs to, and whether any proxy would serve it.
func servedService(slice *discoveryv1.EndpointSlice) (name string, serves bool) {
	if _, headless := slice.Labels[corev1.IsHeadlessService]; headless || slice.AddressType == discoveryv1.AddressTypeFQDN {
		return "", false
	}
	name = slice.Labels[discoveryv1.LabelServiceName]
	return name, name != ""
}

// readAddressType returns the family of a slice's addresses, or nil if it names none.
func readAddressType(path *field.Path, typ discoveryv1.AddressType) (*model.Family, field.ErrorList) {
	if typ == "" {
		return nil, field.ErrorList{field.Required(path, "")}
	}
	family, ok := families[corev1.IPFamily(typ)]
	if !ok {
		return nil, field.ErrorList{field.NotSupported(path, typ, []discoveryv1.AddressType{
			discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN})}
	}
	return &family, nil
}

// readSlicePorts reads the ports that the proxy can use. As in kube-proxy, a port without a name or a number is none: no
// number does not mean every port.
func readSlicePorts(path *field.Path, entries []discoveryv1.EndpointPort) ([]model.SlicePort, field.ErrorList) {
	if len(entries) > maxSlicePorts {
		return nil, field.ErrorList{field.TooMany(path, len(entries), maxSlicePorts)}
	}
	var ports []model.SlicePort
	var errs field.ErrorList
	names := make(map[string]bool, len(entries))
	for i := range entries {
		path, entry := path.Index(i), &entries[i]
		if entry.Name == nil || entry.Port == nil || *entry.Port == 0 {
			continue
		}
		port, refused := readSlicePort(path, entry)
		errs = append(errs, refused...)
		if names[port.Name] {
			errs = append(errs, field.Duplicate(path.Child("name"), port.Name))
		}
		names[port.Name] = true
		ports = append(ports, port)
	}
	return ports, errs
}

func readSlicePort(path *field.Path, entry *discoveryv1.EndpointPort) (model.SlicePort, field.ErrorList) {
	errs := checkPortName(path.Child("name"), *entry.Name)
	var name corev1.Protocol
	if entry.Protocol != nil {
		name = *entry.Protocol
	}
	protocol, refused := readProtocol(path.Child("protocol"), name)
	errs = append(errs, refused...)
	number, refused := readPort(path.Child("port"), *entry.Port)
	errs = append(errs, refused...)
	return model.SlicePort{Name: *entry.Name, Protocol: protocol, Port: number}, errs
}

// readEndpoints reads a slice's endpoints. The family is nil if the slice names none; then addresses are not held to one.
func readEndpoints(path *field.Path, family *model.Family, entries []discoveryv1.Endpoint) ([]model.SliceEndpoint, field.ErrorList) {
	if len(entries) > maxSliceEndpoints {
		return nil, field.ErrorList{field.TooMany(path, len(entries), maxSliceEndpoints)}
	}
	var endpoints []model.SliceEndpoint
	var errs field.ErrorList
	for i := range entries {
		endpoint, refused := readEndpoint(path.Index(i), family, &entries[i])
		endpoints, errs = append(endpoints, endpoint), append(errs, refused...)
	}
	return endpoints, errs
}

func readEndpoint(path *field.Path, family *model.Family, entry *discoveryv1.Endpoint) (model.SliceEndpoint, field.ErrorList) {
	addr, errs := readEndpointAddresses(path.Child("addresses"), family, entry.Addresses)
	node := ""
	if entry.NodeName != nil {
		node = *entry.NodeName
		errs = append(errs, checkName(path.Child("nodeName"), node, validation.IsDNS1123Subdomain)...)
	}
	zone := ""
	if entry.Zone != nil {
		zone = *entry.Zone
	}
	forNodes, forZones, refused := readHints(path.Child("hints"), entry.Hints)
	errs = append(errs, refused...)
	return model.SliceEndpoint{Addr: addr, Endpoint: model.Endpoint{
		Node:        node,
		Zone:        zone,
		Ready:       isTrue(entry.Conditions.Ready, true),
		Serving:     isTrue(entry.Conditions.Serving, true),
		Terminating: isTrue(entry.Conditions.Terminating, false),
		HintNodes:   forNodes,
		HintZones:   forZones,
	}}, errs
}

// isTrue reads a condition; the API says what an unset one means.
func isTrue(condition *bool, unset bool) bool {
	if condition == nil {
		return unset
	}
	return *condition
}

// readEndpointAddresses checks all addresses of an endpoint and returns the first, the only one that a consumer may use
// (KEP-752: the others would be the same endpoint by another name).
func readEndpointAddresses(path *field.Path, family *model.Family, texts []string) (netip.Addr, field.ErrorList) {
	switch {
	case len(texts) == 0:
		return netip.Addr{}, field.ErrorList{field.Required(path, "must contain at least 1 address")}
	case len(texts) > maxEndpointAddresses:
		return netip.Addr{}, field.ErrorList{field.TooMany(path, len(texts), maxEndpointAddresses)}
	}
	var first netip.Addr
	var errs field.ErrorList
	for i, text := range texts {
		addr, refused := readUnicast(path.Index(i), text)
		if len(refused) == 0 && family != nil {
			refused = wrongFamily(path.Index(i), addr, *family, "`addressType`")
		}
		errs = append(errs, refused...)
		if i == 0 {
			first = addr
		}
	}
	return first, errs
}

// readHints reads for which nodes and zones an endpoint is meant.
func readHints(path *field.Path, hints *discoveryv1.EndpointHints) (nodes, zones []string, errs field.ErrorList) {
	if hints == nil {
		return nil, nil, nil
	}
	for _, hint := range hints.ForNodes {
		nodes = append(nodes, hint.Name)
	}
	for _, hint := range hints.ForZones {
		zones = append(zones, hint.Name)
	}
	errs = append(checkHints(path.Child("forNodes"), nodes, validation.IsDNS1123Subdomain),
		checkHints(path.Child("forZones"), zones, validation.IsValidLabelValue)...)
	return nodes, zones, errs
}

func checkHints(path *field.Path, names []string, rule func(string) []string) field.ErrorList {
	if len(names) > maxEndpointHints {
		return field.ErrorList{field.TooMany(path, len(names), maxEndpointHints)}
	}
	var errs field.ErrorList
	seen := make(map[string]bool, len(names))
	for i, name := range names {
		path := path.Index(i).Child("name")
		errs = append(errs, invalid(path, name, rule(name))...)
		if seen[name] {
			errs = append(errs, field.Duplicate(path, name))
		}
		seen[name] = true
	}
	return errs
}
