package xds

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// kind is a kind of resource, identified by its type URL.
type kind uint8

const (
	clusters kind = iota
	assignments
	listeners
	numKinds
)

const (
	typePrefix = "type.googleapis.com/envoy."
	hcmType    = typePrefix + "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
	routerType = typePrefix + "extensions.filters.http.router.v3.Router"
)

var typeURLs = [numKinds]string{
	clusters:    typePrefix + "config.cluster.v3.Cluster",
	assignments: typePrefix + "config.endpoint.v3.ClusterLoadAssignment",
	listeners:   typePrefix + "config.listener.v3.Listener",
}

// kindOf returns the kind of a type URL; false for a type that is not served here.
func kindOf(typeURL string) (kind, bool) {
	for k, url := range typeURLs {
		if url == typeURL {
			return kind(k), true
		}
	}
	return 0, false
}

// TypeNames are the short names of the kinds, as in the protocol's own documents.
var TypeNames = [numKinds]string{clusters: "CDS", assignments: "EDS", listeners: "LDS"}

// String returns the short name of a kind.
func (k kind) String() string { return TypeNames[k] }

// request holds the relevant fields of a DiscoveryRequest.
type request struct {
	typeURL string
	nonce   string
	node    string // the client's node ID
	names   []string
	// isNACK is set if the client rejected the response with the nonce. errorDetail is why.
	isNACK      bool
	errorDetail string
}

var errMalformedRequest = errors.New("not a DiscoveryRequest")

// parseRequest parses a DiscoveryRequest.
func parseRequest(message []byte) (request, error) {
	var r request
	err := eachField(message, func(field int, value []byte) error {
		switch field {
		case 2:
			return eachField(value, func(field int, value []byte) error {
				if field == 1 {
					r.node = string(value)
				}
				return nil
			})
		case 3:
			if len(value) > maxNameLength { // not a name of a Service port, so it is not retained
				return errLongName
			}
			if r.names = append(r.names, string(value)); len(r.names) > maxNames {
				return errTooManyNames
			}
		case 4:
			r.typeURL = string(value)
		case 5:
			r.nonce = string(value)
		case 6:
			r.isNACK = true
			return eachField(value, func(field int, value []byte) error {
				if field == 2 {
					r.errorDetail = string(value)
				}
				return nil
			})
		}
		return nil
	})
	return r, err
}

// eachField calls take for the fields of a message that are strings, bytes or messages, and skips all others.
func eachField(message []byte, take func(field int, value []byte) error) error {
	for len(message) > 0 {
		number, wireType, n := protowire.ConsumeTag(message)
		if n < 0 {
			return fmt.Errorf("%w: %w", errMalformedRequest, protowire.ParseError(n))
		}
		message = message[n:]
		if wireType != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, wireType, message); n < 0 {
				return fmt.Errorf("%w: %w", errMalformedRequest, protowire.ParseError(n))
			}
			message = message[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(message)
		if n < 0 {
			return fmt.Errorf("%w: %w", errMalformedRequest, protowire.ParseError(n))
		}
		if err := take(int(number), value); err != nil {
			return err
		}
		message = message[n:]
	}
	return nil
}

// message is a partly written protobuf message. Comments name its fields as in Envoy's API.
type message []byte

func (m message) text(number protowire.Number, text string) message {
	return protowire.AppendString(protowire.AppendTag(m, number, protowire.BytesType), text)
}

func (m message) number(number protowire.Number, value uint64) message {
	return protowire.AppendVarint(protowire.AppendTag(m, number, protowire.VarintType), value)
}

// nested writes a message as a field. Its length precedes it, and is known only afterwards.
func (m message) nested(number protowire.Number, write func(message) message) message {
	m = protowire.AppendTag(m, number, protowire.BytesType)
	start := len(m)
	m = write(m)
	length := uint64(len(m) - start)
	size := protowire.SizeVarint(length)
	m = append(m, make([]byte, size)...)
	copy(m[start+size:], m[start:len(m)-size])
	protowire.AppendVarint(m[:start], length)
	return m
}

// wrapped writes a UInt32Value.
func (m message) wrapped(number protowire.Number, value uint64) message {
	return m.nested(number, func(m message) message { return m.number(1, value) })
}

// any writes a message of a type as an Any field.
func (m message) any(number protowire.Number, typeURL string, write func(message) message) message {
	return m.nested(number, func(m message) message { return m.text(1, typeURL).nested(2, write) })
}

// head writes the first fields of a DiscoveryResponse: version_info, type_url and nonce. Its resources follow.
func (m message) head(k kind, version, nonce string) message {
	return m.text(1, version).text(4, typeURLs[k]).text(5, nonce)
}

// resource writes one of a DiscoveryResponse's resources.
func (m message) resource(k kind, name string, localities string) message {
	return m.any(2, typeURLs[k], func(m message) message {
		switch k {
		case clusters:
			return m.cluster(name)
		case listeners:
			return m.listener(name)
		default:
			return m.assignment(name, localities)
		}
	})
}

// listener writes a Listener whose routes all lead to the cluster of the same name.
func (m message) listener(name string) message {
	route := func(m message) message {
		return m.nested(1, func(m message) message { return m.text(1, "") }). // match.prefix
											nested(2, func(m message) message { return m.text(1, name) }) // route.cluster
	}
	host := func(m message) message { return m.text(1, name).text(2, "*").nested(3, route) } // name, domains, routes
	routes := func(m message) message { return m.text(1, name).nested(2, host) }             // name, virtual_hosts
	router := func(m message) message {                                                      // name, typed_config
		return m.text(1, "envoy.filters.http.router").any(4, routerType, func(m message) message { return m })
	}
	manager := func(m message) message { // stat_prefix, route_config, http_filters
		return m.text(2, name).nested(4, routes).nested(5, router)
	}
	return m.text(1, name).nested(19, func(m message) message { return m.any(1, hcmType, manager) }) // name, api_listener
}

// Values of a Cluster: its type is EDS, and the API's version is V3.
const (
	typeEDS   = 3
	versionV3 = 2
)

// cluster writes a Cluster whose endpoints are sent on the same stream.
func (m message) cluster(name string) message {
	source := func(m message) message { // ads, resource_api_version
		return m.nested(3, func(m message) message { return m }).number(6, versionV3)
	}
	m = m.text(1, name).number(2, typeEDS)
	m = m.nested(3, func(m message) message { return m.nested(1, source) }) // eds_cluster_config.eds_config
	return m.nested(27, func(m message) message {                           // common_lb_config.locality_weighted_lb_config
		return m.nested(3, func(m message) message { return m })
	})
}

// assignment writes a ClusterLoadAssignment. A port without endpoints has no localities: its clients fail at once.
func (m message) assignment(name, localities string) message {
	return append(m.text(1, name), localities...) // cluster_name, endpoints
}

// write writes LocalityLbEndpoints. The weight of a locality is the sum of its endpoints' weights, so that each slot of
// the kernel's table has the same weight.
func (l *locality) write(m message) message {
	m = m.nested(1, func(m message) message { // locality
		if l.zone != "" {
			m = m.text(2, l.zone)
		}
		if subZone := l.subZone(); subZone != "" {
			m = m.text(3, subZone)
		}
		return m
	})
	for _, endpoint := range l.endpoints {
		socket := func(m message) message { // address, port_value
			return m.text(2, endpoint.Addr().String()).number(3, uint64(endpoint.Port()))
		}
		m = m.nested(2, func(m message) message { // lb_endpoints
			m = m.nested(1, func(m message) message { // endpoint.address.socket_address
				return m.nested(1, func(m message) message { return m.nested(1, socket) })
			})
			if l.slots > 1 {
				m = m.wrapped(4, uint64(l.slots)) // load_balancing_weight: for clients that ignore localities
			}
			return m
		})
	}
	m = m.wrapped(3, uint64(l.slots)*uint64(len(l.endpoints))) // load_balancing_weight
	if l.priority > 0 {
		m = m.number(5, uint64(l.priority))
	}
	return m
}
