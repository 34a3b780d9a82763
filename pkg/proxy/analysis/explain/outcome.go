package explain

import (
	"fmt"

	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// outcomeNames are the stable codes of the outcomes.
var outcomeNames = [...]string{
	selection.Balance: "balance",
	selection.Refuse:  "refuse",
	selection.Drop:    "drop",
}

// outcomeOwnedByOther is the outcome of a ClusterIP that another Service owns.
const outcomeOwnedByOther = "lost"

// trafficPath describes connections, independently of where they end.
type trafficPath struct {
	subject string       // "New connections to the ClusterIP"
	policy  string       // the policy that keeps them on this node, if one does
	source  clientSource // the source address that endpoints see; zero if it should not be shown
}

// describe completes the description of some traffic with its destination.
func (p trafficPath) describe(traffic Traffic, choice selection.Choice, outcome selection.Outcome) Traffic {
	traffic.Choice = choiceCluster
	if p.policy != "" {
		traffic.Choice = choiceLocal
	}
	traffic.Outcome = outcomeNames[outcome]
	traffic.Message = p.subject + " " + p.predicate(len(choice.Endpoints), outcome)
	if outcome == selection.Balance {
		traffic.Source = p.source.code
	}
	return traffic
}

// predicate describes the effect on the client, and the source address that the endpoint sees.
func (p trafficPath) predicate(endpoints int, outcome selection.Outcome) string {
	where, source := "", p.source.text
	if p.policy != "" {
		where = " on this node"
	}
	switch {
	case outcome == selection.Refuse:
		return "are refused at once, because no endpoint may be used."
	case outcome == selection.Drop:
		return fmt.Sprintf("are dropped, because %s is Local and every usable endpoint is on another node.", p.policy)
	case source == "" && endpoints == 1:
		return fmt.Sprintf("go to one endpoint%s.", where)
	case source == "":
		return fmt.Sprintf("are spread at random over %d endpoints%s.", endpoints, where)
	case endpoints == 1:
		return fmt.Sprintf("go to one endpoint%s, which sees %s.", where, source)
	}
	return fmt.Sprintf("are spread at random over %d endpoints%s, which see %s.", endpoints, where, source)
}

// clientSource is the kind of source address that an endpoint sees: a stable code, and a phrase for sentences.
type clientSource struct{ code, text string }

var (
	kept        = clientSource{"kept", "the client's own address"}
	masqueraded = clientSource{"masqueraded", "an address of this node instead of the client's"}
	keptForPods = clientSource{"keptForPods", "a pod's own address, or one of this node"}
	// nodeMasqueraded is masqueraded if only this node can be the client.
	nodeMasqueraded = clientSource{masqueraded.code, "an address of this node"}
)

// outcomeOfClusterIP returns the outcome of the dialled ClusterIP, as a code and a sentence.
func outcomeOfClusterIP(traffic []Traffic) (outcome, message string) {
	switch {
	case len(traffic) == 0:
		return outcomeOwnedByOther, "This port cannot be reached, because other Services own all its frontends."
	case traffic[0].To != toClusterIP:
		return outcomeOwnedByOther, "The ClusterIP does not lead here, because another Service owns it on this port."
	}
	return traffic[0].Outcome, traffic[0].Message
}
