package apitest

// Trips are what one request may cost at most, or must cost where it succeeds.
type Trips struct{ Postgres, Redis int }

const (
	// often enough that one trip more of each request cannot pass for one of those that belong to none of them
	countedTimes = 20
	// connections that are made, statements that are prepared, refusals that Redis is told of, all at once
	beside       = 12
	countedTries = 3 // for whatever else happens beside: a trip of the request itself is there each time
)

// CountTrips warms the stores' connections up, sends the request many times and compares.
func (s *Server) CountTrips(what string, each Trips, send func()) {
	s.t.Helper()
	send()
	for try := 1; ; try++ {
		var got Trips
		got.Redis = s.RedisTrips.Of(func() {
			got.Postgres = s.PostgresTrips.Of(func() {
				for range countedTimes {
					send()
				}
			})
		})
		if fits(got.Postgres, each.Postgres) && fits(got.Redis, each.Redis) {
			return
		}
		if try == countedTries {
			s.t.Errorf("%s: %d requests took %+v, want %+v each", what, countedTimes, got, each)
			return
		}
	}
}

func fits(got, each int) bool {
	least := each * countedTimes
	return got >= least && got <= least+beside
}
