package source

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// protocols are the protocols a port may have. Kubernetes has no others.
var protocols = map[corev1.Protocol]model.Protocol{
	corev1.ProtocolTCP:  model.TCP,
	corev1.ProtocolUDP:  model.UDP,
	corev1.ProtocolSCTP: model.SCTP,
}

// families are the families by their name in spec.ipFamilies and in addressType.
var families = map[corev1.IPFamily]model.Family{
	corev1.IPv4Protocol: model.IPv4,
	corev1.IPv6Protocol: model.IPv6,
}

// readProtocol reads a port's protocol. TCP is what the API server fills in where there is none.
func readProtocol(path *field.Path, name corev1.Protocol) (model.Protocol, field.ErrorList) {
	if name == "" {
		return model.TCP, nil
	}
	protocol, ok := protocols[name]
	if !ok {
		supported := []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}
		return 0, field.ErrorList{field.NotSupported(path, name, supported)}
	}
	return protocol, nil
}

// readPort reads a port number. The API server accepts any number in a hand-made EndpointSlice; cut to 16 bits, 70000 would
// quietly become 4464.
func readPort(path *field.Path, number int32) (uint16, field.ErrorList) {
	return uint16(number), invalid(path, number, validation.IsValidPortNum(int(number)))
}

// readAddress reads an address to which connections may be sent. Kubernetes' own parser words the refusal of leading zeros
// and of IPv4-mapped IPv6 addresses, which different programs read as different addresses.
func readAddress(path *field.Path, text string) (netip.Addr, field.ErrorList) {
	if errs := validation.IsValidIPForLegacyField(path, text, true, nil); len(errs) > 0 {
		return netip.Addr{}, errs
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}, field.ErrorList{field.Invalid(path, text, err.Error())}
	}
	return addr, nil
}

// readUnicast reads an address that names one machine of the cluster, as a ClusterIP and an endpoint's address must. A
// loopback endpoint would lead every pod to the node's own private services.
func readUnicast(path *field.Path, text string) (netip.Addr, field.ErrorList) {
	addr, errs := readAddress(path, text)
	if len(errs) > 0 {
		return addr, errs
	}
	reason := ""
	switch {
	case addr.IsUnspecified():
		reason = "may not be unspecified (0.0.0.0 or ::)"
	case addr.IsLoopback():
		reason = "may not be in the loopback range (127.0.0.0/8, ::1/128)"
	case addr.IsLinkLocalUnicast():
		reason = "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
	case addr.IsMulticast():
		reason = "may not be in the multicast range (224.0.0.0/4, ff00::/8)"
	default:
		return addr, nil
	}
	return addr, field.ErrorList{field.Invalid(path, text, reason)}
}

// wrongFamily refuses an address of another family than the one a field names.
func wrongFamily(path *field.Path, addr netip.Addr, want model.Family, because string) field.ErrorList {
	if model.FamilyOf(addr) == want {
		return nil
	}
	return field.ErrorList{field.Invalid(path, addr.String(), fmt.Sprintf("must be an %s address, as %s says", want, because))}
}

// checkNamespace refuses a namespace that is no DNS label: names end up in the names of kernel objects.
func checkNamespace(path *field.Path, namespace string) field.ErrorList {
	if namespace == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return invalid(path, namespace, validation.IsDNS1123Label(namespace))
}

// checkName refuses an object's name that breaks the rule of its kind.
func checkName(path *field.Path, name string, rule func(string) []string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return invalid(path, name, rule(name))
}

// checkPortName refuses a port name that is neither empty nor a DNS label.
func checkPortName(path *field.Path, name string) field.ErrorList {
	if name == "" {
		return nil
	}
	return invalid(path, name, validation.IsDNS1123Label(name))
}

// invalid makes an error of each message of a validation function.
func invalid(path *field.Path, value any, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, message := range messages {
		errs = append(errs, field.Invalid(path, value, message))
	}
	return errs
}
