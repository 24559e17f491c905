package session

import (
	"crypto/sha256"
	"encoding/binary"
	"net/http"
	"slices"
	"time"

	"github.com/almonerhq/almoner/shared/contract/spelling"
	"github.com/almonerhq/almoner/shared/crypt/seal"
)

const (
	deviceCookie   = "almoner-device"
	offerCookie    = "almoner-passkey-offer"
	deviceLife     = 180 * 24 * time.Hour
	maxOnDevice    = 4  // accounts per browser
	deviceHashSize = 16 // bytes of the e-mail address's hash
	deviceEntry    = deviceHashSize + 8
)

// Devices remembers at which browsers an account was signed in to, in a sealed cookie that scripts cannot read. The
// cookie does not authenticate and gives no access: passwords from such a browser are checked before those from
// browsers that have never signed in (see turnQueue). It is safe for concurrent use.
type Devices struct {
	box    *seal.Box
	cookie string // its name, without prefix
	secure bool
	now    func() time.Time
}

// NewDevices derives the key of the cookie from the master keys. secure reports whether the pages are served over
// https.
func NewDevices(keys seal.Keys, secure bool, now func() time.Time) (*Devices, error) {
	box, err := seal.NewBox(keys, "device cookie")
	if err != nil {
		return nil, err
	}
	return &Devices{box: box, cookie: deviceCookie, secure: secure, now: now}, nil
}

// NewPasskeyOffers returns Devices with a separate cookie, which lists the accounts to which a browser has offered a
// passkey.
func NewPasskeyOffers(keys seal.Keys, secure bool, now func() time.Time) (*Devices, error) {
	box, err := seal.NewBox(keys, "passkey offer cookie")
	if err != nil {
		return nil, err
	}
	return &Devices{box: box, cookie: offerCookie, secure: secure, now: now}, nil
}

// Knows reports whether the browser has signed in to the account of this e-mail address within deviceLife.
func (d *Devices) Knows(r *http.Request, email string) bool {
	wanted := deviceHash(email)
	return slices.ContainsFunc(d.entries(r), func(entry []byte) bool {
		return string(entry[:deviceHashSize]) == string(wanted)
	})
}

// Remember records in the browser's cookie that it has signed in to the account of this e-mail address. The cookie
// holds only the newest few accounts.
func (d *Devices) Remember(w http.ResponseWriter, r *http.Request, email string) {
	hash := deviceHash(email)
	content := binary.BigEndian.AppendUint64(slices.Clone(hash), uint64(d.now().Unix()))
	for _, entry := range d.entries(r) {
		if len(content) < maxOnDevice*deviceEntry && string(entry[:deviceHashSize]) != string(hash) {
			content = append(content, entry...)
		}
	}
	http.SetCookie(w, &http.Cookie{
		Name:     d.name(),
		Value:    d.box.Seal(content),
		Path:     "/",
		MaxAge:   int(deviceLife.Seconds()),
		HttpOnly: true,
		Secure:   d.secure,
		SameSite: http.SameSiteLaxMode,
	})
}

// entries returns the unexpired entries of the browser's cookie: the hash of an e-mail address and the time of the
// sign-in.
func (d *Devices) entries(r *http.Request) (entries [][]byte) {
	cookie, err := r.Cookie(d.name())
	if err != nil {
		return nil
	}
	content, err := d.box.Open(cookie.Value)
	if err != nil || len(content)%deviceEntry != 0 {
		return nil
	}
	for entry := range slices.Chunk(content, deviceEntry) {
		signedIn := time.Unix(int64(binary.BigEndian.Uint64(entry[deviceHashSize:])), 0)
		if d.now().Sub(signedIn) < deviceLife {
			entries = append(entries, entry)
		}
	}
	return entries
}

func (d *Devices) name() string {
	if d.secure {
		return "__Host-" + d.cookie
	}
	return d.cookie
}

func deviceHash(email string) []byte {
	sum := sha256.Sum256([]byte("device\x00" + spelling.Key(email)))
	return sum[:deviceHashSize]
}
