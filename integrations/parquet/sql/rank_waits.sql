-- How long each rank waits for others, and they for it, over all whole steps: divide by `steps` for the mean of a step.
select s.run as run, s.rank as rank, s.steps as steps, s.step_ns as step_ns,
    coalesce(c.collectives, 0) as collectives,
    coalesce(w.wait_ns, 0) as wait_ns,
    coalesce(l.waited_for_ns, 0) as waited_for_ns,
    coalesce(l.last, 0) as last
from rank_steps s
left join (
    select c.run as run, c.rank as rank, count(*) as collectives
    from collectives c join whole_steps w on c.run = w.run and c.rank = w.rank and c.step = w.step
    group by c.run, c.rank
) c on s.run = c.run and s.rank = c.rank
left join (select run, rank, sum(wait_ns) as wait_ns from arrivals group by run, rank) w
    on s.run = w.run and s.rank = w.rank
left join (
    select run, rank, sum(median_ns) as waited_for_ns, count(*) as last from last_arrivals group by run, rank
) l on s.run = l.run and s.rank = l.rank
order by run, rank
