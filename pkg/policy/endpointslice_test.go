package policy

import (
	"fmt"
	"testing"
)

func TestWhyASliceIsNotUsedNamesWhatItHasAndWhatIsMissing(t *testing.T) {
	const named, unnamed = "http", ""
	ports := func(names ...string) (ports []PortWords) {
		for i, name := range names {
			ports = append(ports, PortWords{name, "TCP", uint16(8080 + i)})
		}
		return ports
	}
	of := func(addressType string, endpoints, crowded int, ports []PortWords) SliceWords {
		return SliceWords{Name: "t/web-1", AddressType: addressType, Endpoints: endpoints, Crowded: crowded, Ports: ports}
	}
	for name, test := range map[string]struct {
		slice SliceWords
		port  string
		want  Unused
	}{
		"it serves": {of("IPv4", 2, 0, ports(named)), named, Unused{}},
		"a slice without a name for its port": {of("IPv4", 2, 0, ports(unnamed)), named, Unused{SliceOfOtherPorts,
			"EndpointSlice t/web-1 has 2 endpoints, but no port named http/TCP; it has 8080/TCP without a name."}},
		"a Service without a name for its port": {of("IPv4", 1, 0, ports(named)), unnamed, Unused{SliceOfOtherPorts,
			"EndpointSlice t/web-1 has 1 endpoint, but no TCP port without a name; it has http 8080/TCP."}},
		"another protocol": {of("IPv4", 1, 0, []PortWords{{named, "UDP", 53}}), named, Unused{SliceOfOtherPorts,
			"EndpointSlice t/web-1 has 1 endpoint, but no port named http/TCP; it has http 53/UDP."}},
		"many ports": {of("IPv4", 1, 0, ports("a", "b", "c", "d", "e", "f")), named, Unused{SliceOfOtherPorts,
			"EndpointSlice t/web-1 has 1 endpoint, but no port named http/TCP; it has a 8080/TCP, b 8081/TCP, c 8082/TCP, d 8083/TCP and 2 more."}},
		"no ports": {of("IPv4", 3, 0, nil), named, Unused{SliceWithoutPorts,
			"EndpointSlice t/web-1 has 3 endpoints, but no ports, which does not mean every port."}},
		"names": {of("FQDN", 1, 0, nil), named, Unused{SliceOfNames, "EndpointSlice t/web-1 has 1 endpoint, " +
			"but by name (addressType FQDN), and a proxy sends connections to addresses alone."}},
		"the other family": {of("IPv6", 2, 0, ports(named)), named, Unused{SliceOfOtherFamily,
			"EndpointSlice t/web-1 has 2 IPv6 endpoints, but the Service has no IPv6 address, only IPv4."}},
		"two addresses in one endpoint": {of("IPv4", 2, 1, ports(named)), named, Unused{LaterAddresses, "EndpointSlice t/web-1 has " +
			"an endpoint with more than one address, and only the first one is used; another endpoint is an entry of its own."}},
		"two addresses in each": {of("IPv4", 2, 2, ports(named)), named, Unused{LaterAddresses, "EndpointSlice t/web-1 has " +
			"2 endpoints with more than one address, and only the first one of each is used; another endpoint is an entry of its own."}},
		"a label for others": {SliceWords{Name: "t/web-1", AddressType: "IPv4", Endpoints: 1, IsHeadless: true, Ports: ports(named)}, named,
			Unused{SliceOfHeadless, "EndpointSlice t/web-1 has 1 endpoint, but the label service.kubernetes.io/headless, " +
				"with which no proxy reads it."}},
		"nothing to miss": {of("FQDN", 0, 0, nil), named, Unused{}},
	} {
		t.Run(name, func(t *testing.T) {
			port := PortWords{test.port, "TCP", 80}
			got := test.slice.WhyUnreachable(false, []string{"IPv4"})
			if got == (Unused{}) && !test.slice.Serves(NewWanted(port)) {
				got = test.slice.WhyNot(port)
			}
			if got == (Unused{}) {
				got = test.slice.WhyCrowded()
			}
			if got != test.want {
				t.Errorf("got\n%+v, want\n%+v", got, test.want)
			}
		})
	}
}

func TestAPortIsFoundByNameAndProtocolAmongMany(t *testing.T) {
	var ports []PortWords
	for i := range 1000 {
		ports = append(ports, PortWords{fmt.Sprint("p", i), "TCP", uint16(i + 1)})
	}
	slice := SliceWords{Ports: ports}
	if !slice.Serves(NewWanted(PortWords{"x", "TCP", 1}, PortWords{"p999", "TCP", 7})) ||
		slice.Serves(NewWanted(PortWords{"p999", "UDP", 1000})) {
		t.Error("name and protocol decide, and no number does")
	}
}
