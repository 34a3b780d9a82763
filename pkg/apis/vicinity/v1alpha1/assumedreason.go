package v1alpha1

// DemandAssumedReason is why bounds are planned for the assumed demand although measured demand was requested. It is the
// sentence that every program prints.
type DemandAssumedReason string

// The reasons.
const (
	DemandUnknown          DemandAssumedReason = "It is unknown whether demand is measured, so demand is assumed."
	DemandListingForbidden DemandAssumedReason = "Listing ServiceDemands is forbidden, so demand is assumed."
	NoUsableDemand         DemandAssumedReason = "There is no usable ServiceDemand, so demand is assumed: Services with few " +
		"connections have none."
	DemandNotPublished DemandAssumedReason = "The Lease " + DemandLeaseName +
		" is missing or cannot be read, so demand is assumed. The webhook's component demand " +
		"publishes it."
	DemandLeaseNotRenewed DemandAssumedReason = "Measured demand is too old: the Lease " + DemandLeaseName + " was not renewed for " +
		DemandFreshForText + ", so demand is " +
		"assumed. The webhook's log has the reason."
)
