package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// act is one state of the cluster.
type act struct {
	headline string
	story    string
	emptied  string // the zone without web pods
	// evacuated is the zone that is being evacuated.
	evacuated string
	changed   string // the zone of the clients that must move; empty for all
}

// excludedZone returns the zone to which no connection may go.
func (a act) excludedZone() string { return cmp.Or(a.emptied, a.evacuated) }

var acts = []act{
	{
		headline: "1. Every zone has web pods",
		story:    "Each zone has two nodes, each node a client and a web pod. Connections should stay in their zone.",
	},
	{
		headline: "2. zone-b loses its web pods",
		story:    "The endpoints of zone-b are removed. Its clients should go to the other zones; the other clients should stay.",
		emptied:  "zone-b",
		changed:  "zone-b",
	},
	{
		headline: "3. zone-b gets them back",
		story:    "The endpoints of zone-b return. Its clients should return at once.",
		changed:  "zone-b",
	},
}

// explainedNode is the node whose explanation is shown in each act.
const explainedNode = "node-b1"

// errUnexpected means that connections or explanations contradict the owner's settings.
var errUnexpected = errors.New("not every connection went to an expected endpoint")

// actGroup is a group of acts. play returns the result and the mistakes. An error ends the demo, because the acts after
// it would not find the expected state.
type actGroup struct {
	acts string
	play func(context.Context, *page) (shown string, wrong []string, err error)
}

// play starts the proxies, plays all acts and prints the results.
func play(ctx context.Context, p *page, s *setup) error {
	if err := s.begin(ctx, p); err != nil {
		return err
	}
	results, mistakes := playAll(ctx, p, []actGroup{
		{"acts 1 to 3", s.playZones}, {"act 4", s.playLoad}, {"act 5", s.playEvacuation}, {"act 6", s.playNodeFailure}, {"act 7", s.playBytes},
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return s.finish(p, results, mistakes)
}

// playAll plays acts until one of them cannot continue, and returns the results up to then and the mistakes.
func playAll(ctx context.Context, p *page, all []actGroup) (results, mistakes []string) {
	for _, group := range all {
		result, mistakesOfGroup, err := group.play(ctx, p)
		mistakes = append(mistakes, mistakesOfGroup...)
		if err != nil {
			return results, append(mistakes, fmt.Sprintf("%s failed, so the demo ends here: %v", group.acts, err))
		}
		if len(mistakesOfGroup) == 0 {
			results = append(results, result)
		}
	}
	return results, mistakes
}

// playZones plays the first three acts.
func (s *setup) playZones(ctx context.Context, p *page) (result string, mistakes []string, err error) {
	for _, act := range acts {
		found, err := s.playAct(ctx, p, act)
		mistakes = append(mistakes, found...)
		if err != nil {
			return "", mistakes, err
		}
	}
	return fmt.Sprintf("Each of the %d connections of acts 1 to 3 went to an expected endpoint, and explain agrees.",
		len(acts)*len(s.locations)*connections), mistakes, nil
}

// begin starts the proxies with the state of the first act.
func (s *setup) begin(ctx context.Context, p *page) error {
	p.print("%s", p.ink(bold, "Vicinity: connections go to the nearest endpoint that the Service's owner allows"))
	p.print("")
	p.print("Service %s, %s and %s, has the annotation", serviceName, frontends[0], frontends[1])
	p.print("  vicinity.dev/topology-keys: %q", topologyKeys)
	p.print("It means: an endpoint in the client's own zone if there is one, otherwise any endpoint.\n")
	s.printLocations(p)
	started := time.Now()
	_, err := s.writeEndpoints(s.without(acts[0].emptied))
	_, errNodes := s.writeNodes("")
	if err := errors.Join(err, errNodes, s.writeService(unbounded)); err != nil {
		return err
	}
	if err := s.startProxies(ctx); err != nil {
		return err
	}
	p.print("%d proxies, one on each node, had their rules in the kernel after %s.", len(s.proxies), short(time.Since(started)))
	return nil
}

// printLocations prints the pods of each zone on a line.
func (s *setup) printLocations(p *page) {
	for i, location := range s.locations {
		if i%nodesPerZone == 0 {
			fmt.Fprintf(p.w, "  %s", p.ink(bold, location.zone))
		}
		fmt.Fprintf(p.w, "   %s: %s %s %s", location.node.Name, location.web.Name, location.web.IPv4, location.web.IPv6)
		if i%nodesPerZone == nodesPerZone-1 {
			p.print("")
		}
	}
	p.print("")
}

// playAct brings the cluster into the act's state, measures, and returns the mistakes.
func (s *setup) playAct(ctx context.Context, p *page, act act) ([]string, error) {
	p.headline(act.headline)
	p.print("  %s", act.story)
	written := time.Now()
	if act.changed != "" {
		var err error
		if written, err = s.writeEndpoints(s.without(act.emptied)); err != nil {
			return nil, err
		}
	}
	observed := s.observe(ctx, act, written)
	explained, err := s.explain(ctx, explainedNode)
	if err != nil || ctx.Err() != nil {
		return nil, errors.Join(err, ctx.Err())
	}

	if act.changed != "" {
		observed.printDuration(p, act, "files were")
	}
	p.print("  Where %d connections from each client went, a third of them over IPv6:\n", connections)
	view := s.table(act, observed.rows)
	view.print(p)
	p.quote("proxy explain "+serviceName+" --node "+explainedNode, explained)
	return mistakesOf(act, observed, view), nil
}

// observation has the measurements of one state of the cluster.
type observation struct {
	took           convergence
	convergenceErr error // set if connections were not correct in time
	rows           []row
	disagreements  []string
}

// observe waits until connections go to the expected web pods, and measures.
func (s *setup) observe(ctx context.Context, act act, written time.Time) observation {
	var observed observation
	observed.took, observed.convergenceErr = s.converge(ctx, s.movingClients(act), act.excludedZone(), written)
	observed.rows = s.measure(ctx, act.excludedZone())
	observed.disagreements = s.disagreements(ctx, act)
	return observed
}

// printDuration prints the time from the write until connections were correct.
func (o observation) printDuration(p *page, act act, written string) {
	if o.convergenceErr == nil {
		p.print("  First correct connection %s after the %s written; all of %s correct after %s.",
			short(o.took.first), written, act.changed, short(o.took.all))
	}
}

// movingClients returns the locations of the clients that the act moves to other web pods.
func (s *setup) movingClients(act act) []location {
	var list []location
	for _, location := range s.locations {
		if act.changed == "" || location.zone == act.changed {
			list = append(list, location)
		}
	}
	return list
}

func (s *setup) table(act act, rows []row) table {
	view := table{emptied: act.emptied, evacuated: act.evacuated, rows: rows}
	for _, location := range s.locations {
		view.zones = append(view.zones, location.zone)
		view.pods = append(view.pods, location.web.Name)
	}
	return view
}

func mistakesOf(act act, observed observation, view table) []string {
	var found []string
	if observed.convergenceErr != nil {
		found = append(found, observed.convergenceErr.Error())
	}
	for _, row := range view.rows {
		found = append(found, row.mistakes(view.pods)...)
	}
	found = append(found, observed.disagreements...)
	for i := range found {
		found[i] = fmt.Sprintf("act %s %s", act.headline[:2], found[i])
	}
	return found
}

// finish prints the results of the acts. If there were mistakes, it also prints them and the proxies' last output.
func (s *setup) finish(p *page, results, mistakes []string) error {
	p.print("")
	for _, sentence := range results {
		p.print("%s", p.ink(green, "✓ "+sentence))
	}
	if len(mistakes) == 0 {
		return nil
	}
	p.headline("What went wrong")
	for _, sentence := range mistakes {
		p.print("  %s %s", p.ink(red, "✗"), sentence)
	}
	for _, proxy := range s.proxies {
		p.print("\n  Last output of the proxy on %s:\n%s", proxy.node.Name, proxy.lastOutput())
	}
	return errUnexpected
}

// short rounds a duration to a readable precision.
func short(d time.Duration) time.Duration {
	if d < 10*time.Millisecond {
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}
