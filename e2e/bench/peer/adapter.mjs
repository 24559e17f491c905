// The Redis adapter of node-oidc-provider: the commands of its example adapter, with a newer ioredis.
import { Redis } from 'ioredis';

const spent = new Set(['AuthorizationCode', 'RefreshToken', 'DeviceCode', 'BackchannelAuthenticationRequest']); // single-use
const ofGrants = new Set([...spent, 'AccessToken']);
const redis = new Redis(process.env.REDIS_URL, { keyPrefix: 'oidc:' });

export class RedisAdapter {
  constructor(name) {
    this.name = name;
  }

  key(id) {
    return `${this.name}:${id}`;
  }

  async upsert(id, payload, expiresIn) {
    const key = this.key(id);
    const text = JSON.stringify(payload);
    const all = redis.multi();
    if (spent.has(this.name)) all.hset(key, { payload: text });
    else all.set(key, text);
    if (expiresIn) all.expire(key, expiresIn);
    if (ofGrants.has(this.name) && payload.grantId) {
      const list = `grant:${payload.grantId}`;
      all.rpush(list, key);
      if (expiresIn > (await redis.ttl(list))) all.expire(list, expiresIn);
    }
    if (payload.uid) all.set(`uid:${payload.uid}`, id, 'EX', expiresIn);
    await all.exec();
  }

  async find(id) {
    if (!spent.has(this.name)) {
      const text = await redis.get(this.key(id));
      return text ? JSON.parse(text) : undefined;
    }
    const { payload, ...rest } = await redis.hgetall(this.key(id));
    return payload ? { ...rest, ...JSON.parse(payload) } : undefined;
  }

  async findByUid(uid) {
    return this.find(await redis.get(`uid:${uid}`));
  }

  async findByUserCode() {
    return undefined; // device codes are not used
  }

  async consume(id) {
    await redis.hset(this.key(id), 'consumed', Math.floor(Date.now() / 1000));
  }

  async destroy(id) {
    await redis.del(this.key(id));
  }

  async revokeByGrantId(grantId) {
    const list = `grant:${grantId}`;
    const all = redis.multi();
    for (const key of await redis.lrange(list, 0, -1)) all.del(key);
    all.del(list);
    await all.exec();
  }
}
