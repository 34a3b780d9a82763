package authorization

import "github.com/vicinity-proxy/vicinity/pkg/budget"

const (
	// clientReviews per second, with a burst of clientBurst, limit the reviews that one client address can cause with
	// tokens that were not allowed before. A scraper needs one review for each new token.
	clientReviews, clientBurst = 1, 10
	// allReviews per second, with a burst of allBurst, limit these reviews for all addresses together.
	allReviews, allBurst = 20, 100
)

// newBudget returns a budget for the reviews that unknown tokens cause.
func newBudget() *budget.Budget {
	return budget.New(
		budget.Rate{PerSecond: clientReviews, Burst: clientBurst},
		budget.Rate{PerSecond: allReviews, Burst: allBurst})
}
