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
	accepted := weights(h.Values("Accept-Encoding"))
	if weight, named := accepted["gzip"]; named {
		return weight > 0
	}
	return accepted["*"] > 0
}

// PrefersHTML reports whether the client of a request is a browser that shows the response: it names text/html in
// Accept (RFC 9110, section 12.5.1), and JSON with less weight or not at all.
func PrefersHTML(h http.Header) bool {
	accepted := weights(h.Values("Accept"))
	json := 0.0
	for _, name := range []string{"*/*", "application/*", "application/json"} { // the most specific one counts
		if weight, named := accepted[name]; named {
			json = weight
		}
	}
	return accepted["text/html"] > json
}

// weights returns the names of a field such as Accept, in small letters, with their weights (RFC 9110, section 12.4.2).
func weights(values []string) map[string]float64 {
	out := map[string]float64{}
	for one := range strings.SplitSeq(strings.Join(values, ","), ",") {
		name, parameters, _ := strings.Cut(one, ";")
		weight := 1.0
		for parameter := range strings.SplitSeq(parameters, ";") {
			if text, isWeight := strings.CutPrefix(strings.ToLower(strings.TrimSpace(parameter)), "q="); isWeight {
				weight, _ = strconv.ParseFloat(text, 64) // 0 if it is not a number
			}
		}
		out[strings.ToLower(strings.TrimSpace(name))] = weight
	}
	return out
}

// Hash returns the source expression that lets a Content-Security-Policy allow this one inline style or script.
func Hash(content string) string {
	sum := sha256.Sum256([]byte(content))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
