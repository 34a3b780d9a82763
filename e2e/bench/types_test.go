package bench_test

import (
	"net/netip"
	"slices"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// serviceType is spec.type of a Service.
type serviceType string

const (
	onlyClusterIP serviceType = "ClusterIP"
	nodePort      serviceType = "NodePort"
	loadBalancer  serviceType = "LoadBalancer"
)

var serviceTypes = []serviceType{onlyClusterIP, nodePort, loadBalancer}

// One in mixSize Services of a mix is a load balancer (5 %), and three have only a node port (15 %). A mix with fewer
// than eight load balancers starts with eight instead, because eight are dialled in a cluster of any size.
const (
	mixSize        = 20
	nodePortsInMix = 3
	exposedInMix   = nodePortsInMix + 1
	firstNodePort  = 30_000 // and up: 20 % of 44,125 Services do not fit into 30000-32767
	firstCheckPort = 50_000 // of health checks
	oneLocalIn     = 4      // one in four load balancers has externalTrafficPolicy: Local
	sourceRanges   = 3
	minExposed     = 8
)

// isSmall reports whether a mix would have too few load balancers.
func (s size) isSmall() bool { return s.services < minExposed*mixSize }

func (s size) typeOf(number int) serviceType {
	switch position := number % mixSize; {
	case s.mix && s.isSmall() && number < minExposed:
		return loadBalancer
	case !s.mix || s.isSmall() || position >= exposedInMix:
		return onlyClusterIP
	case position < nodePortsInMix:
		return nodePort
	}
	return loadBalancer
}

// numbersOf returns the numbers of all Services of the given types.
func (s size) numbersOf(types ...serviceType) []int {
	var numbers []int
	for number := range s.services {
		if slices.Contains(types, s.typeOf(number)) {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

// spread returns as many of the numbers as some says, at equal distances, including the first.
func spread(numbers []int, count int) []int {
	var chosen []int
	for i := range count {
		chosen = append(chosen, numbers[i*len(numbers)/count])
	}
	return chosen
}

// ordinal returns the index of a load balancer among the load balancers.
func (s size) ordinal(number int) int {
	if s.isSmall() {
		return number
	}
	return number / mixSize
}

// isLocal reports whether a load balancer has externalTrafficPolicy: Local.
func (s size) isLocal(number int) bool { return s.ordinal(number)%oneLocalIn == 0 }

// expose adds the frontends of its type to a Service, which already has a ClusterIP.
func (s size) expose(service *model.Service, number int) {
	kind := s.typeOf(number)
	if kind == onlyClusterIP {
		return
	}
	service.Ports[0].NodePort = nodePortOf(number)
	if kind == nodePort {
		return
	}
	service.LoadBalancerIPs = []netip.Addr{loadBalancerIP(number)}
	service.SourceRanges = sourceRangesOf(number)
	if s.isLocal(number) {
		service.ExternalTrafficLocal = true
		service.HealthCheckNodePort = firstCheckPort + uint16(s.ordinal(number))
	}
}

func nodePortOf(number int) uint16 {
	return firstNodePort + uint16(number/mixSize*exposedInMix+number%mixSize)
}

func loadBalancerIP(number int) netip.Addr {
	return netip.AddrFrom4([4]byte{198, 18, byte(number >> 8), byte(number)})
}

// sourceRangesOf returns prefixes of several lengths, including the pod range, so that pods can dial.
func sourceRangesOf(number int) []netip.Prefix {
	return []netip.Prefix{
		fabric.PodsIPv4,
		netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 51, byte(number >> 8), 0}), 24),
		netip.PrefixFrom(netip.AddrFrom4([4]byte{203, 0, 113, byte(number) &^ 15}), 28),
	}
}
