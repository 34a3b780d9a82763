package convert

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// readServicePorts reads spec.ports. Each port needs its own name and its own frontends. One number for several
// protocols is legal, for node ports too.
func readServicePorts(path *field.Path, spec *corev1.ServiceSpec) ([]model.ServicePort, field.ErrorList) {
	if len(spec.Ports) == 0 {
		return nil, field.ErrorList{field.Required(path, "")}
	}
	var ports []model.ServicePort
	var errs field.ErrorList
	seen := portsSeen{names: map[string]bool{}, numbers: map[protocolAndPort]bool{}, nodePorts: map[protocolAndPort]bool{}}
	for i := range spec.Ports {
		port, rejected := readServicePort(path.Index(i), spec, &spec.Ports[i])
		if len(rejected) == 0 {
			rejected = seen.add(path.Index(i), port)
		}
		ports, errs = append(ports, port), append(errs, rejected...)
	}
	return ports, errs
}

func readServicePort(path *field.Path, spec *corev1.ServiceSpec, port *corev1.ServicePort) (model.ServicePort, field.ErrorList) {
	var errs field.ErrorList
	if port.Name == "" && len(spec.Ports) > 1 {
		errs = append(errs, field.Required(path.Child("name"), "a Service with several ports must name each of them"))
	}
	errs = append(errs, checkPortName(path.Child("name"), port.Name)...)
	protocol, rejected := readProtocol(path.Child("protocol"), port.Protocol)
	errs = append(errs, rejected...)
	number, rejected := readPort(path.Child("port"), port.Port)
	errs = append(errs, rejected...)
	nodePort, rejected := readNodePort(path.Child("nodePort"), spec.Type, port.NodePort)
	errs = append(errs, rejected...)
	return model.ServicePort{Name: port.Name, Protocol: protocol, Port: number, NodePort: nodePort}, errs
}

// readNodePort reads a node port; zero means none.
func readNodePort(path *field.Path, typ corev1.ServiceType, number int32) (uint16, field.ErrorList) {
	if number == 0 {
		return 0, nil
	}
	if typ == "" || typ == corev1.ServiceTypeClusterIP {
		return 0, field.ErrorList{field.Forbidden(path, "may not be used when `type` is 'ClusterIP'")}
	}
	return readPort(path, number)
}

type protocolAndPort struct {
	protocol model.Protocol
	port     uint16
}

// portsSeen are the names and frontends of the ports that were read so far.
type portsSeen struct {
	names     map[string]bool
	numbers   map[protocolAndPort]bool
	nodePorts map[protocolAndPort]bool
}

// add returns errors for a port that shares its name or a frontend with an earlier one.
func (s portsSeen) add(path *field.Path, port model.ServicePort) field.ErrorList {
	var errs field.ErrorList
	if s.names[port.Name] {
		errs = append(errs, field.Duplicate(path.Child("name"), port.Name))
	}
	number := protocolAndPort{port.Protocol, port.Port}
	if s.numbers[number] {
		errs = append(errs, field.Duplicate(path.Child("port"), port.Port))
	}
	s.names[port.Name], s.numbers[number] = true, true
	if port.NodePort == 0 {
		return errs
	}
	nodePort := protocolAndPort{port.Protocol, port.NodePort}
	if s.nodePorts[nodePort] {
		errs = append(errs, field.Duplicate(path.Child("nodePort"), port.NodePort))
	}
	s.nodePorts[nodePort] = true
	return errs
}
