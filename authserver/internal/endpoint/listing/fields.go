package listing

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/listquery"
	"github.com/almonerhq/almoner/shared/web"
)

// encode returns the JSON of the records, with these members alone unless fields is nil.
func encode[R any](page []R, fields []string) ([]json.RawMessage, error) {
	data := make([]json.RawMessage, 0, len(page))
	for _, one := range page {
		record, err := web.EncodeJSON(one)
		if err == nil && fields != nil {
			record, err = listquery.Project(nil, record, fields)
		}
		if err != nil {
			return nil, fmt.Errorf("encode a record: %w", err)
		}
		data = append(data, record)
	}
	return data, nil
}

// NewestFirst returns the key of a record for a list that has the newest records first, ties by id.
func NewestFirst(created time.Time, id uuid.UUID) string {
	return fmt.Sprintf("%019d %s", math.MaxInt64-created.UnixMicro(), id)
}
