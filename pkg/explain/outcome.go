package explain

import (
	"fmt"

	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// outcomeNames are the stable words for the outcomes.
var outcomeNames = [...]string{
	selection.Balance: "balance",
	selection.Refuse:  "refuse",
	selection.Drop:    "drop",
}

// outcomeMessage says what somebody who dials the ClusterIP will see.
func outcomeMessage(decision selection.Decision) string {
	if len(decision.Owned) == 0 {
		return "Nobody reaches this port, because other Services own all its frontends."
	}
	choice, outcome := decision.Selection.ClusterIP()
	const dialled = "New connections to the ClusterIP "
	switch {
	case outcome == selection.Refuse:
		return dialled + "are refused at once, because no endpoint may be used."
	case outcome == selection.Drop:
		return dialled + "get no answer, because internalTrafficPolicy is Local and every usable endpoint is on another node."
	case len(choice.Endpoints) == 1:
		return dialled + "go to one endpoint."
	}
	return fmt.Sprintf("%sare spread at random over %d endpoints.", dialled, len(choice.Endpoints))
}
