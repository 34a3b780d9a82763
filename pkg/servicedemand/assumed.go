package servicedemand

// AssumedReason is why bounds are planned for the assumed demand although measured demand was requested. It is the sentence
// that every program prints.
type AssumedReason string

// The reasons.
const (
	DemandUnknown    AssumedReason = "It is unknown whether demand is measured, so demand is assumed."
	ListingForbidden AssumedReason = "Listing ServiceDemands is forbidden, so demand is assumed."
	NoUsableDemand   AssumedReason = "There is no usable ServiceDemand, so demand is assumed: Services with few connections have none."
	NotPublished     AssumedReason = "The Lease " + LeaseName +
		" is missing or cannot be read, so demand is assumed. The webhook's component demand " +
		"publishes it."
	LeaseNotRenewed AssumedReason = "Measured demand is too old: the Lease " + LeaseName + " was not renewed for " + FreshForText + ", so demand is " +
		"assumed. The webhook's log has the reason."
)
