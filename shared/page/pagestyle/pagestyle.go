// Package pagestyle serves the style sheets and other files of pages.
package pagestyle

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/almonerhq/almoner/shared/page/brand"
)

// Accent returns a style sheet that sets the colour of buttons to c, and the colour of links and borders to a readable
// shade of c. It must follow brand.Tokens.
func Accent(c brand.Colour) string {
	declare := func(ground brand.Colour) string {
		a := c.Accent(ground)
		return "--link:" + a.Ink.String() + ";--brand:" + a.Fill.String() +
			";--brand-strong:" + a.Strong.String() + ";--on-brand:" + a.On.String()
	}
	return brand.Override(declare(brand.LightGround), declare(brand.DarkGround))
}

// minCompressed is the minimum length, in bytes, of a file to compress.
const minCompressed = 1 << 10

// File serves content that clients may cache for five minutes, compressed with gzip if they accept it. The content must
// not contain secrets and must be the same for every caller.
func File(content []byte, header map[string]string) http.Handler {
	sum := sha256.Sum256(content)
	tag := `"` + hex.EncodeToString(sum[:8]) + `"` // the same for both encodings, as everywhere in the API
	packed := pack(content)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range header {
			w.Header().Set(name, value)
		}
		w.Header().Set("Cache-Control", "public, max-age=300")
		w.Header().Set("ETag", tag)
		if packed != nil {
			w.Header().Set("Vary", "Accept-Encoding")
		}
		if packed == nil || !acceptsGzip(r.Header) {
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
			return
		}
		w.Header().Set("Content-Encoding", "gzip")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(packed))
	})
}

// pack compresses content at the highest level. It returns nil if the result is not smaller.
func pack(content []byte) []byte {
	if len(content) < minCompressed {
		return nil
	}
	var out bytes.Buffer
	writer, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		panic(err) // only for a level that does not exist
	}
	_, _ = writer.Write(content) // writing to memory cannot fail
	_ = writer.Close()
	if out.Len() >= len(content) {
		return nil
	}
	return out.Bytes()
}

// acceptsGzip reads Accept-Encoding (RFC 9110, section 12.5.3): gzip, or * without gzip, with a weight above 0.
func acceptsGzip(h http.Header) bool {
	accepts := map[string]bool{}
	for coding := range strings.SplitSeq(strings.Join(h.Values("Accept-Encoding"), ","), ",") {
		name, parameters, _ := strings.Cut(coding, ";")
		weight := 1.0
		if text, isWeight := strings.CutPrefix(strings.TrimSpace(parameters), "q="); isWeight {
			weight, _ = strconv.ParseFloat(text, 64) // 0 if it is not a number
		}
		accepts[strings.ToLower(strings.TrimSpace(name))] = weight > 0
	}
	if chosen, named := accepts["gzip"]; named {
		return chosen
	}
	return accepts["*"]
}

// Hash returns the source expression that lets a Content-Security-Policy allow this one inline style or script.
func Hash(content string) string {
	sum := sha256.Sum256([]byte(content))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
