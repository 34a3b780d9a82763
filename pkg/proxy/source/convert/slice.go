package convert

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// The API server's bounds of an EndpointSlice.
const (
	maxSliceEndpoints = 1000
	maxSlicePorts     = 20000
	maxEndpointHints  = 8
)

// EndpointSlice converts a discovery/v1 EndpointSlice. It returns nil and no error for a slice that is not ours to
// serve: one of a headless Service, unless View.WithHeadless is set, or of no Service. If it has names instead of
// addresses, only their number is read.
//
// A slice that does not state its family is rejected. A single invalid port or endpoint is skipped, with a finding: the
// API server accepts such parts, kube-proxy ignores some of them, and rejecting the slice because of one would keep
// sending connections to endpoints that were removed long ago. But a slice whose ports or endpoints are all invalid is
// rejected, too. Accepted without them, it would take all endpoints from a Service that worked before the mistake.
func EndpointSlice(slice *discoveryv1.EndpointSlice, view View) (*model.EndpointSlice, field.ErrorList) {
	service, isServed := servedService(slice, view)
	if !isServed {
		return nil, nil
	}
	metadata := field.NewPath("metadata")
	errs := checkNamespace(metadata.Child("namespace"), slice.Namespace)
	errs = append(errs, checkName(metadata.Child("name"), slice.Name, validation.IsDNS1123Subdomain)...)
	hasNames := slice.AddressType == discoveryv1.AddressTypeFQDN
	var family model.Family
	if !hasNames {
		var rejected field.ErrorList
		family, rejected = readAddressType(field.NewPath("addressType"), slice.AddressType)
		errs = append(errs, rejected...)
	}
	ports, endpoints := field.NewPath("ports"), field.NewPath("endpoints")
	errs = append(errs, checkLength(ports, len(slice.Ports), maxSlicePorts)...)
	errs = append(errs, checkLength(endpoints, len(slice.Endpoints), maxSliceEndpoints)...)
	if len(errs) > 0 {
		return nil, errs
	}
	converted := &model.EndpointSlice{
		Name:    model.ObjectName{Namespace: slice.Namespace, Name: slice.Name},
		Service: model.ObjectName{Namespace: slice.Namespace, Name: service},
		Family:  family,

		IsHeadless:  isHeadless(slice),
		TriggeredAt: readTriggeredAt(slice),
	}
	if hasNames {
		converted.FQDNCount = uint16(len(slice.Endpoints))
		return converted, nil
	}
	var skipped skippedParts
	converted.Ports = readSlicePorts(ports, slice.Ports, &skipped)
	converted.MultiAddressCount = countMultiAddress(slice.Endpoints)
	converted.Endpoints, converted.Hostnames = readEndpoints(endpoints, family, slice.Endpoints, namesOf(slice, view), &skipped)
	noPort, noEndpoint := len(converted.Ports) == 0, len(converted.Endpoints) == 0
	if noPort && len(slice.Ports) > 0 || noEndpoint && len(slice.Endpoints) > 0 {
		return nil, skipped.errs
	}
	converted.Findings = skipped.findings(EndpointSliceKind, converted.Name)
	return converted, nil
}

// readTriggeredAt returns the time of the change of a Pod or Service that made the EndpointSlice controller write this
// version. It is zero without that annotation, as on a slice that another client wrote, and if the annotation is not a
// time: only a metric depends on it.
func readTriggeredAt(slice *discoveryv1.EndpointSlice) time.Time {
	at, err := time.Parse(time.RFC3339Nano, slice.Annotations[triggeredAtSetting.Key])
	if err != nil {
		return time.Time{}
	}
	return at.UTC()
}

// servedService returns the name of the Service that a slice belongs to, and whether any proxy would serve it.
func servedService(slice *discoveryv1.EndpointSlice, view View) (name string, isServed bool) {
	name = serviceNameSetting.value(slice)
	return name, name != "" && isServable(slice, view)
}

// isServable reports whether any proxy would serve a slice of a Service.
func isServable(slice *discoveryv1.EndpointSlice, view View) bool {
	return !isHeadless(slice) || view.WithHeadless
}

// isHeadless reports whether a slice belongs to a headless Service, by the EndpointSlice controller's label.
func isHeadless(slice *discoveryv1.EndpointSlice) bool {
	_, headless := slice.Labels[corev1.IsHeadlessService]
	return headless
}

// sliceController is the value by which the EndpointSlice controller identifies itself in the label
// endpointslice.kubernetes.io/managed-by. It sets the headless label on slices of headless Services. Slices written by
// hand, or mirrored from Endpoints, may lack it.
const sliceController = "endpointslice-controller.k8s.io"

// namesOf returns a function for the DNS names of a slice's endpoints; nil if they are not needed.
func namesOf(slice *discoveryv1.EndpointSlice, view View) func(*discoveryv1.Endpoint) *string {
	isOfProxiedService := !isHeadless(slice) && slice.Labels[discoveryv1.LabelManagedBy] == sliceController
	if !view.WithHeadless || isOfProxiedService {
		return nil
	}
	return func(endpoint *discoveryv1.Endpoint) *string {
		// CoreDNS uses a pod's name unchanged. One with a dot, or of more than 63 characters, would be several labels, or no
		// valid one.
		pod, isUnnamed := endpoint.TargetRef, endpoint.Hostname == nil || *endpoint.Hostname == ""
		if isUnnamed && view.WithPodNames && pod != nil && len(validation.IsDNS1123Label(pod.Name)) == 0 {
			return &pod.Name
		}
		return endpoint.Hostname
	}
}

// readAddressType returns the family of a slice's addresses.
func readAddressType(path *field.Path, typ discoveryv1.AddressType) (model.Family, field.ErrorList) {
	if typ == "" {
		return 0, field.ErrorList{field.Required(path, "")}
	}
	family, ok := families[corev1.IPFamily(typ)]
	if !ok {
		return 0, field.ErrorList{field.NotSupported(path, typ, []discoveryv1.AddressType{
			discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN})}
	}
	return family, nil
}

// readSlicePorts reads the ports that the proxy can use. As in kube-proxy, ports without a name or a number are
// ignored, and so is number 0.
func readSlicePorts(path *field.Path, entries []discoveryv1.EndpointPort, skipped *skippedParts) []model.SlicePort {
	ports := slices.Grow([]model.SlicePort(nil), len(entries)) // exact capacity: slices are many, and stay in memory
	names := make(map[string]bool, len(entries))
	for i := range entries {
		port, rejected := readSlicePort(path.Index(i), &entries[i])
		if len(rejected) == 0 && names[port.Name] {
			rejected = field.ErrorList{field.Duplicate(path.Index(i).Child("name"), port.Name)}
		}
		skipped.add(rejected)
		if len(rejected) == 0 {
			names[port.Name] = true
			ports = append(ports, port)
		}
	}
	return ports
}

func readSlicePort(path *field.Path, entry *discoveryv1.EndpointPort) (model.SlicePort, field.ErrorList) {
	switch {
	case entry.Name == nil: // the API server would have set it to ""
		return model.SlicePort{}, field.ErrorList{field.Required(path.Child("name"), "")}
	case entry.Port == nil:
		return model.SlicePort{}, field.ErrorList{field.Required(path.Child("port"), "a port without a number does not mean all ports")}
	}
	errs := checkPortName(path.Child("name"), *entry.Name)
	var name corev1.Protocol
	if entry.Protocol != nil {
		name = *entry.Protocol
	}
	protocol, rejected := readProtocol(path.Child("protocol"), name)
	errs = append(errs, rejected...)
	number, rejected := readPort(path.Child("port"), *entry.Port)
	errs = append(errs, rejected...)
	return model.SlicePort{Name: *entry.Name, Protocol: protocol, Port: number}, errs
}
