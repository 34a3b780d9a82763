//go:build linux

package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// ErrNoConditionalDelete means that the kernel cannot test the status of entries as it deletes them: it is older than
// about Linux 6.12.
var ErrNoConditionalDelete = errors.New("this kernel cannot test the status of conntrack entries as it deletes them")

// How entries are deleted only while they are unreplied: the kernel has no single request for that, but two requests
// that test the status:
//
//   - An entry can be given a status, but not one without SeenReply if it has SeenReply: that fails with EBUSY
//     (ctnetlink_change_status). So each entry is given Assured, which the kernel itself gives only to connections that
//     have had a reply. A later reply still reaches the connection, which continues normally.
//   - All entries of a protocol and family with a given status can be deleted (ctnetlink_flush_conntrack). The status
//     given is translated, assured and still unreplied, which only the entries that were just assured have.
//
// The second request walks the whole table, so there is one for all entries of a protocol and family. It needs no
// addresses, whose comparison the kernel inverts for IPv6 (see Filter). It has the start of a tuple, without addresses:
// a kernel that does not support CTA_FILTER for this request takes it for the key of an entry, and rejects it as
// incomplete (EINVAL). Without a tuple, the oldest kernels would delete everything.
const (
	markedStatus = Assured | DestinationNAT
	markedMask   = markedStatus | SeenReply
)

// confirmed is the bit of all entries that are in the table.
const confirmed Status = 1 << 3

// conditionalDeleteSupport records whether the kernel can test the status of entries as it deletes them. It is probed
// once.
type conditionalDeleteSupport struct {
	sync.Mutex
	isProbed, isSupported bool
}

// DeleteUnreplied implements Table.
func (c *Conn) DeleteUnreplied(entries []*Entry) (deleted []*Entry, err error) {
	switch isSupported, err := c.supportsConditionalDelete(); {
	case err != nil:
		return nil, err
	case !isSupported:
		return nil, ErrNoConditionalDelete
	}
	marked := map[familyProtocol][]*Entry{}
	for _, e := range entries {
		isMarked, err := c.markAssured(e)
		if err != nil {
			return nil, fmt.Errorf("mark entry %s: %w", e, err)
		}
		if key := (familyProtocol{Only(e.Family()), e.Protocol}); isMarked {
			marked[key] = append(marked[key], e)
		}
	}
	for key, entriesOfKey := range marked {
		if err := c.flush(key, markedStatus, markedMask); err != nil {
			return deleted, fmt.Errorf("delete unreplied entries: %w", err)
		}
		for _, e := range entriesOfKey {
			_, exists, err := c.Get(e) // entries that had a reply in the meantime still exist
			if err != nil {
				return deleted, fmt.Errorf("reread entry %s: %w", e, err)
			}
			if !exists {
				deleted = append(deleted, e)
			}
		}
	}
	return deleted, nil
}

// familyProtocol is the family and protocol of all entries of one request.
type familyProtocol struct {
	family   Families
	protocol model.Protocol
}

// supportsConditionalDelete determines once whether the kernel tests the status of entries as it deletes them: it
// requests the deletion of entries with an impossible status.
func (c *Conn) supportsConditionalDelete() (bool, error) {
	c.conditionalDelete.Lock()
	defer c.conditionalDelete.Unlock()
	if c.conditionalDelete.isProbed {
		return c.conditionalDelete.isSupported, nil
	}
	err := c.flush(familyProtocol{OnlyIPv4, model.TCP}, SeenReply, Assured) // no entry matches a bit that the mask lacks
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EOPNOTSUPP) {
		return false, fmt.Errorf("probe whether the kernel tests the status of deleted entries: %w", err)
	}
	c.conditionalDelete.isProbed, c.conditionalDelete.isSupported = true, err == nil
	return c.conditionalDelete.isSupported, nil
}

// markAssured gives an entry the status Assured. It reports false if the entry had a reply or was removed.
func (c *Conn) markAssured(e *Entry) (bool, error) {
	attributes := netlink.NewAttributeEncoder()
	attributes.ByteOrder = binary.BigEndian
	e.encodeTuple(attributes)
	attributes.Uint32(nl.CTA_STATUS, uint32(e.Status&^SeenReply|Assured|confirmed))
	encoded, err := attributes.Encode()
	if err != nil {
		return false, err
	}
	err = c.execute(nl.IPCTNL_MSG_CT_NEW, Only(e.Family()), encoded)
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil, err
}

// flush deletes the entries of a family and protocol that have a given status.
func (c *Conn) flush(key familyProtocol, status, mask Status) error {
	filter := Filter{Protocol: key.protocol, Status: status, Mask: mask}
	encoded, err := filter.encode(netip.Addr{})
	if err != nil {
		return err
	}
	return c.execute(nl.IPCTNL_MSG_CT_DELETE, key.family, encoded)
}
