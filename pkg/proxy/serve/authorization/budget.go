package authorization

import "github.com/vicinity-proxy/vicinity/pkg/budget"

const (
	// clientReviews a second, and clientBurst at once, are what one client address can make us ask the API server about
	// tokens that it did not allow before. A scraper needs one for each new token.
	clientReviews, clientBurst = 1, 10
	// allReviews a second, and allBurst at once, are the same for all addresses together.
	allReviews, allBurst = 20, 100
)

// newBudget returns what strangers can make us ask the API server.
func newBudget() *budget.Budget {
	return budget.New(
		budget.Rate{PerSecond: clientReviews, Burst: clientBurst},
		budget.Rate{PerSecond: allReviews, Burst: allBurst})
}
