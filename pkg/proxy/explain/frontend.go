package explain

import (
	"fmt"
	"net/netip"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// addressOf returns a frontend as Frontend.Address has it.
func addressOf(frontend model.Frontend) string {
	if frontend.IsNodePort() {
		return fmt.Sprintf("*:%d", frontend.Port)
	}
	return netip.AddrPortFrom(frontend.Addr, frontend.Port).String()
}

func frontends(owned []model.PortFrontend) []Frontend {
	list := make([]Frontend, 0, len(owned))
	for _, frontend := range owned {
		list = append(list, describeFrontend(frontend))
	}
	return list
}

func describeFrontend(frontend model.PortFrontend) Frontend {
	return Frontend{Address: addressOf(frontend.Frontend), Kind: frontend.Kind.String()}
}

// Why another Service owns a frontend. The order of the rules is model's.
const (
	apiServersAddress = "APIServersAddress"
	ownersClusterIP   = "OwnersClusterIP"
	ownersBalancer    = "OwnersLoadBalancerIP"
	ownersNodePort    = "OwnersNodePort"
	ownerIsOlder      = "OwnerIsOlder"
	ownersNameIsFirst = "OwnersNameIsFirst"
)

func lost(cluster *model.Cluster, decision selection.Decision) []LostFrontend {
	var list []LostFrontend
	for _, frontend := range decision.Lost {
		reason := whyLost(decision.Service, cluster.Service(frontend.Owner), frontend)
		one := LostFrontend{Frontend: describeFrontend(frontend.PortFrontend), Reason: reason, Message: lostMessage(frontend, reason)}
		if !frontend.APIServer {
			one.Owner = frontend.Owner.String()
		}
		list = append(list, one)
	}
	return list
}

func whyLost(loser, owner *model.Service, lost model.LostFrontend) string {
	switch {
	case lost.APIServer:
		return apiServersAddress
	case lost.Kind != model.ClusterIP && lost.OwnerKind == model.ClusterIP:
		return ownersClusterIP
	case lost.Kind == model.ExternalIP && lost.OwnerKind == model.LoadBalancerIP:
		return ownersBalancer
	case lost.Kind == model.ExternalIP && lost.OwnerKind == model.NodePort:
		return ownersNodePort
	case owner.Created.Before(loser.Created):
		return ownerIsOlder
	}
	return ownersNameIsFirst
}

func lostMessage(lost model.LostFrontend, reason string) string {
	const untilReleased = "until that one lets go of it."
	switch reason {
	case apiServersAddress:
		return fmt.Sprintf("%s is left out because the proxy reaches the API server there", lost.Frontend)
	case ownersClusterIP:
		return fmt.Sprintf("%s belongs to the Service %s, whose ClusterIP it is, %s", lost.Frontend, lost.Owner, untilReleased)
	case ownersBalancer:
		return fmt.Sprintf("%s belongs to the Service %s, whose load balancer has it, %s", lost.Frontend, lost.Owner, untilReleased)
	case ownersNodePort:
		return fmt.Sprintf("%s belongs to the Service %s, whose node port is served there, %s", lost.Frontend, lost.Owner, untilReleased)
	case ownerIsOlder:
		return fmt.Sprintf("%s belongs to the older Service %s, %s", lost.Frontend, lost.Owner, untilReleased)
	}
	return fmt.Sprintf("%s belongs to the Service %s, which is of the same age and first by name, %s",
		lost.Frontend, lost.Owner, untilReleased)
}
