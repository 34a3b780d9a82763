package convert

import (
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

// families maps the names in spec.ipFamilies and in addressType to families.
var families = map[corev1.IPFamily]model.Family{
	corev1.IPv4Protocol: model.IPv4,
	corev1.IPv6Protocol: model.IPv6,
}

// readProtocol reads a port's protocol. TCP is the API server's default.
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

// readPort reads a port number. The API server accepts any number in a hand-written EndpointSlice; truncated to 16
// bits, 70000 would silently become 4464.
func readPort(path *field.Path, number int32) (uint16, field.ErrorList) {
	return uint16(number), invalid(path, number, validation.IsValidPortNum(int(number)))
}

// checkNamespace rejects a namespace that is not a DNS label: names become part of the names of kernel objects.
func checkNamespace(path *field.Path, namespace string) field.ErrorList {
	if namespace == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return invalid(path, namespace, validation.IsDNS1123Label(namespace))
}

// checkClusterScoped rejects a namespace on an object of a cluster-scoped kind.
func checkClusterScoped(metadata *field.Path, namespace string) field.ErrorList {
	if namespace == "" {
		return nil
	}
	return field.ErrorList{field.Forbidden(metadata.Child("namespace"), "not allowed on this type")}
}

// checkName rejects an object's name that breaks the rule of its kind.
func checkName(path *field.Path, name string, rule func(string) []string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return invalid(path, name, rule(name))
}

// checkPortName accepts a port name that is empty or a DNS label.
func checkPortName(path *field.Path, name string) field.ErrorList {
	if name == "" {
		return nil
	}
	return invalid(path, name, validation.IsDNS1123Label(name))
}

// checkLength rejects a list that is longer than the API server allows.
func checkLength(path *field.Path, length, limit int) field.ErrorList {
	if length <= limit {
		return nil
	}
	return field.ErrorList{field.TooMany(path, length, limit)}
}

// invalid returns an error for each message of a validation function.
func invalid(path *field.Path, value any, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, message := range messages {
		errs = append(errs, field.Invalid(path, value, message))
	}
	return errs
}
